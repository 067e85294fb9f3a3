#!/bin/sh
set -eu
python3 -m unittest -q
python3 - <<'E'
from pages import page_count, page
assert page_count(0, 10) == 0 and page_count(10, 10) == 1 and page_count(11, 10) == 2
assert page(list(range(11)), 2, 10) == [10]
E
git diff --quiet origin/main -- test_pages.py
