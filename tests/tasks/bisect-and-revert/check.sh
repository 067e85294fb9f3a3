#!/bin/sh
set -eu
sh check_basket.sh
[ ! -e settings.py ]
[ "$(wc -l < notes.txt)" -eq 11 ]
git log -1 --format=%s | grep -q 'Revert "step 7"'
