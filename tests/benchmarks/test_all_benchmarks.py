"""Every benchmark can be imported: a name that is moved or deleted in the package is noticed here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parents[2]


def test_every_benchmark_can_be_imported() -> None:
    modules = [
        ".".join(path.relative_to(HERE).with_suffix("").parts)
        for path in sorted((HERE / "benchmarks").rglob("*.py"))
        if "peers" not in path.parts  # these import other agents
    ]
    assert len(modules) > 20
    done = subprocess.run(
        [sys.executable, "-c", f"import {', '.join(modules)}"],
        capture_output=True,
        text=True,
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": str(HERE / "tests")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
