#!/bin/sh
set -eu
python3 - <<'E'
from collections import Counter
counts = Counter(line.split()[2] for line in open("logs/app.log") if line.split()[1] == "ERROR")
want = [[name, str(number)] for name, number in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in open("errors.md") if line.startswith("|")]
assert rows[0] == ["Service", "Errors"] and rows[2:] == want, (rows, want)
E
git diff --quiet origin/main -- logs
