"""How much survives a compaction: facts, tokens, calls, and bytes of the cached prefix."""

import sys
from pathlib import Path

# The scripted model server is the one that the tests use.
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
