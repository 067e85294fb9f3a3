#!/bin/sh
set -eu
git diff --quiet origin/main -- people.csv
python3 - <<'E'
import json
people = json.load(open("people.json", encoding="utf-8"))
assert people == [
    {"name": "Ada, Countess", "age": 36, "tags": ["math", "first"]},
    {"name": "Günter \"G\" Ö", "age": None, "tags": []},
    {"name": "三郎", "age": 7, "tags": ["kid"]},
    {"name": "two\nlines", "age": 0, "tags": ["a b"]},
], people
E
