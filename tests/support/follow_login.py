"""A browser for tests: `BROWSER="python follow_login.py %s"` opens a page and follows its redirects."""

import sys
import urllib.request

with urllib.request.urlopen(sys.argv[1], timeout=60) as page:
    page.read()
