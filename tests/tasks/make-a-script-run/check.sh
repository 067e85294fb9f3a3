#!/bin/sh
set -eu
[ -x bin/report ]
git ls-files -s bin/report | grep -q ^100755
[ "$(./bin/report)" = "3 files" ]
touch "data/one more"
[ "$(./bin/report)" = "4 files" ]
