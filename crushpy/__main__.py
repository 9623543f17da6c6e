"""`python -m crushpy`."""

from crushpy.cli import main

main()
