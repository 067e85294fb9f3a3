#!/bin/sh
set -eu
python3 - <<'E'
from slug import slug
for title, want in [
    ("Hello, World!", "hello-world"), ("  spaces   and\ttabs ", "spaces-and-tabs"), ("", "untitled"), ("!!!", "untitled"),
    ("Crème Brûlée", "creme-brulee"), ("a" * 60, "a" * 40), ("ab " * 20, "ab-" * 13 + "a"), ("x" * 39 + " y", "x" * 39),
    ("C++ & Rust", "c-rust"), ("under_score", "under-score"),
]:
    got = slug(title)
    assert got == want, (title, got, want)
E
