#!/bin/sh
set -eu
python3 - <<'E'
ini = open("Settings.ini", "rb").read()
assert ini == b"\xef\xbb\xbf[app]\r\nname=Caf\xc3\xa9\r\nversion=2.0\r\n\r\n[log]\r\nversion=1.0\r\n", ini
app = open("app.txt", "rb").read()
assert app == b"Version 2.0\r\nlast line without end", app
E
