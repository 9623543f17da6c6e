"""What `benchmarks.scale` is given: sizes in short, and a clear word where they are none."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.scale.__main__ import sizes

HERE = Path(__file__).parents[2]


def test_sizes_are_written_short() -> None:
    assert sizes("500,10k,1.5m") == [500, 10_000, 1_500_000]


@pytest.mark.parametrize("text", ["abc", "", "1k,,2k", "0", "-1", "inf", "kk"])
def test_scale_reports_an_invalid_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no size"):
        sizes(text)


def test_sizes_are_for_rows_that_are_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", "all", "--sizes", "5"],
        capture_output=True,
        text=True,
        cwd=HERE,
    )
    assert done.returncode == 2 and "--sizes is for rows by their names" in done.stderr
