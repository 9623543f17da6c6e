"""The table of programs: what its loader refuses, how options are read, and that every row can be used."""

import re

import msgspec
import pytest

from crushpy.permissions.options import Argument, read_arguments
from crushpy.permissions.program_table import PROGRAMS, Program, facts, family, read_programs
from crushpy.permissions.shell.ast import Word
from crushpy.permissions.shell.line_reader import parse_shell

PATTERNS = ("unread", "safe", "risky_operands", "risky_text")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[a]\nx = { reads = 'contents' }\n'y, x' = { plain = true }", "two rows are about x"),
        ("[a]\nx = { same_as = 'y' }", "there is no row about y"),
        ("[a]\nx = { raeds = 'contents' }", "raeds"),
        ("[a]\nx = { reads = 'some' }", "some"),
        ("[a]\nx = { values = '-a b' }", "matching regex"),
    ],
)
def test_loading_refuses_a_wrong_table(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        read_programs(msgspec.toml.decode(text, type=dict[str, dict[str, Program]]))


def test_every_regular_expression_of_the_table_compiles() -> None:
    texts = {getattr(row, name) for row in PROGRAMS.values() for name in PATTERNS}
    for text in texts | {row.more[0] for row in PROGRAMS.values()}:
        re.compile(text)


def test_a_program_is_found_by_its_other_names() -> None:
    assert [family(name) for name in ("python3.12", "pip3", "gawk", "fdfind", "ls2")] == [
        *("python", "pip", "awk", "fd"),
        "ls2",
    ]
    assert facts("ls").reads == "names"
    assert facts("ls2") == Program()
    assert facts("git", "log").reads == "repository"


ROW = Program(values="-n --size", script="-e", risky="-o --output --exec")


def read(line: str, row: Program = ROW) -> list[str]:
    """Each word with what it may be: option, value, operand."""
    words = parse_shell(line).commands[0].words
    return [
        f"{argument.word.text}:{'o' * argument.is_option}{'v' * argument.is_value}{'x' * argument.is_operand}"
        for argument in read_arguments(words, row)
    ]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("p a -n 1 b", ["a:x", "-n:o", "1:v", "b:x"]),
        ("p -n1 b", ["-n1:o", "b:x"]),
        ("p -vn 1 b", ["-vn:o", "1:v", "b:x"]),
        ("p --size 1 b", ["--size:o", "1:v", "b:x"]),
        ("p --size=1 b", ["--size=1:o", "b:x"]),
        ("p a -- -n b", ["a:x", "-n:x", "b:x"]),
        # It is not known whether -q takes a value, so that `--` may be one.
        ("p -q -- -n b", ["-q:o", "-n:ox", "b:vx"]),
        ("p -n -- -n b", ["-n:o", "--:v", "-n:o", "b:v"]),
        ("p - *.py", ["-:x", "*.py:ox"]),
    ],
)
def test_words_are_read_as_options_values_and_operands(line: str, found: list[str]) -> None:
    assert read(line) == found


def test_the_first_operand_ends_the_options_if_the_table_says_so() -> None:
    assert read("p -n 1 a -n b", Program(values="-n", ends=True)) == ["-n:o", "1:v", "a:x", "-n:x", "b:x"]


def test_letters_without_a_dash_are_options_if_the_table_says_so() -> None:
    assert read("tar xf a b", Program(inputs="-f", bundled=True)) == ["xf:o", "a:v", "b:x"]


def first_argument(text: str) -> Argument:
    return next(read_arguments((Word("p"), Word(text)), ROW))


@pytest.mark.parametrize(
    ("text", "is_risky", "awaits_value"),
    [
        ("-o", True, True),
        ("-vo", True, True),
        ("-ofile", True, False),
        ("-no", False, False),
        ("--output", True, True),
        ("--outp", True, True),
        ("--output=x", True, False),
        ("-exec", True, True),
        ("-exec=x", True, False),
        ("--executable", False, False),
        ("output", False, False),
        ("o", False, False),
    ],
)
def test_an_option_is_found_in_its_spellings(text: str, is_risky: bool, awaits_value: bool) -> None:
    argument = first_argument(text)
    assert (argument.has(ROW.risky), argument.awaits_value(ROW.risky)) == (is_risky, awaits_value)
