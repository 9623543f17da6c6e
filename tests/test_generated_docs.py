"""The reference lists in docs/ are generated from the code by `bin/generate-docs`."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


def test_the_generated_sections_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "bin/generate-docs", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
