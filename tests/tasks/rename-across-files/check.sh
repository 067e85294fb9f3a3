#!/bin/sh
set -eu
! grep -rnw fetch_row --include='*.py' --include='*.md' .
grep -qw fetch_rows store/db.py
[ "$(grep -rnw load_record . --include='*.py' --include='*.md' | wc -l)" -ge 6 ]
python3 -m unittest -q test_db
