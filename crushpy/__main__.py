"""`python -m crushpy`."""

import sys

from crushpy.core.own_code import restrict_imports

if not sys.flags.safe_path:
    restrict_imports(sys.path[0])  # the current folder

from crushpy.cli import main

main()
