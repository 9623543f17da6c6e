"""Regular expressions mean the same on every Python: what 3.11.4 and before get wrong is not used."""

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "crushpy"

ERRS = re.compile(
    r"(?:(?<!\()\)|\}|\\\d)"  # the end of a group, a pattern put in by name, or a reference to a group
    r"(?:[*+?]|\{\{?\d*,?\d*\}?\})\+(?!=)"  # repeated possessively
    r"|\(\?>"  # an atomic group
)
"""Possessive repeats of a single character or class are right in every release; those of more are not."""


@pytest.mark.parametrize(
    "pattern", [r"(?:a|b)*+", r"(ab)?+", r"(ab){2,3}+", r"{part}++", r"(.)\1*+", r"(?>a)"]
)
def test_the_search_below_finds_what_it_is_for(pattern: str) -> None:
    assert ERRS.search(pattern)
    assert not ERRS.search(r"[a-z]*+\d++x?+[^b]{1,4}+\s{{0,4}}+(?:a|b)*")


def test_patterns_use_no_possessive_or_atomic_groups() -> None:
    found = [
        f"{source.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for source in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(source.read_text().splitlines(), 1)
        if ERRS.search(line)
    ]
    assert not found, "Write it so that it can be read in one way only:\n" + "\n".join(found)
