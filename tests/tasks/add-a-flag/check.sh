#!/bin/sh
set -eu
printf 'a b\nc\n' > /tmp/in.$$
trap 'rm -f /tmp/in.$$' EXIT
[ "$(python3 wc.py /tmp/in.$$)" = "2 lines, 3 words" ]
python3 wc.py --json /tmp/in.$$ | python3 -c 'import json, sys; assert json.load(sys.stdin) == {"lines": 2, "words": 3}'
python3 -m unittest -q test_wc
grep -q -- --json test_wc.py
