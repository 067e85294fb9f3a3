#!/bin/sh
git tag good
set -eu
commit() { git add -A && git -c user.name=S -c user.email=s@example.org commit -q -m "$1"; }
i=1
while [ $i -le 12 ]; do
    echo "note $i" >> notes.txt
    if [ $i -eq 7 ]; then sed -i 's/total + price/total - price/' basket.py; echo "rounding = 2" > settings.py; fi
    commit "step $i"
    i=$((i + 1))
done
