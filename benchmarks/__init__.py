"""How fast crushpy is: each module is a command, `.venv/bin/python -m benchmarks.NAME`."""
