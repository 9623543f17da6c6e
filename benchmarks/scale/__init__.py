"""How cost grows with size: `python -m benchmarks.scale ROW|all [--sizes 10k,100k,1m | --quick]`.

A file for each row.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
