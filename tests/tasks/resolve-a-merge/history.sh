#!/bin/sh
set -eu
commit() { git add -A && git -c user.name=S -c user.email=s@example.org commit -q -m "$1"; }
git checkout -q -b feature
printf 'def greet(name, loud=False):\n    text = "Helo, " + name\n    return text.upper() if loud else text\n' > greet.py
echo new > feature.txt
commit "a loud greeting"
git checkout -q main
printf 'def greet(name):\n    return "Hello, " + name + "!"\n' > greet.py
commit "mend the greeting"
