#!/bin/sh
set -eu
python3 - <<'E'
from greet import greet
assert greet("Ada") == "Hello, Ada!" and greet("Ada", loud=True) == "HELLO, ADA!"
E
! grep -n '^<<<<<<<\|^>>>>>>>' greet.py
[ "$(git log -1 --format=%P | wc -w)" -eq 2 ]
[ -e feature.txt ]
