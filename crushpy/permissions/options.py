"""Reads the words of a command as options, values and operands, for every question about a command.

The table of programs says which options take a value, as far as it is known. A word that could be two things
counts as both, so that each question can take the answer that is safe for it.
"""

from collections.abc import Iterator, Sequence

from crushpy.core.messages import Data
from crushpy.permissions.program_table import Program, option_names
from crushpy.permissions.shell.ast import Word


class Argument(Data, frozen=True):
    """One word after the name of a program."""

    index: int
    word: Word
    is_option: bool
    """True if it is an option, or could turn out to be one."""
    is_value: bool
    """True if it is the value of the option before it."""
    is_operand: bool
    names: tuple[str, ...] = ()
    """The options in it: `-x` and `-f` of `-xf`, `--all` of `--all=1`."""
    value: str | None = None
    """The value attached to the last of them."""

    def has(self, options: str) -> bool:
        """Whether one of these options is in it."""
        wanted = option_names(options)
        return any(_is_one_of(name, wanted) for name in self.names) or self._spells(wanted)

    def awaits_value(self, options: str) -> bool:
        """Whether the next word may be the value of one of these options."""
        wanted = option_names(options)
        is_last = self.value is None and any(_is_one_of(name, wanted) for name in self.names[-1:])
        return is_last or (self._spells(wanted) and "=" not in self.word.text)

    def _spells(self, wanted: frozenset[str]) -> bool:
        """True for a long option with one dash, which some programs take: `go test -exec`."""
        return bool(self.names) and f"-{self.word.text.partition('=')[0]}" in wanted


def _is_one_of(name: str, wanted: frozenset[str]) -> bool:
    """True if `name` is one of these options, or an abbreviation of one."""
    is_long = name.startswith("--") and name != "--"
    return name in wanted or (is_long and any(option.startswith((name, name.lower())) for option in wanted))


def read_arguments(words: Sequence[Word], row: Program) -> Iterator[Argument]:
    """The words after the first, which names the program of `row`, without the `--` that ends the options."""
    valued = option_names(f"{row.values} {row.inputs} {row.output} {row.script}")
    attached = valued | option_names(f"{row.optional} {row.in_place}")
    is_over = is_surely_over = is_value = False
    for index, word in enumerate(words[1:], 1):
        if word.text == "--" and word.kind == "literal" and not (is_over or is_value):
            is_over, is_surely_over = True, not words[index - 1].is_option  # it may be the value of that
            continue
        is_bundle = row.bundled and index == 1 and word.kind == "literal"
        is_option = (word.is_option or word.may_be_option or is_bundle) and word.text != "--"
        is_option = is_option and not is_surely_over
        names, value = _split(word.text, attached) if is_option and word.kind == "literal" else ((), None)
        is_operand = is_over or not (names or is_value)
        yield Argument(index, word, is_option, is_value, is_operand, names, value)
        is_value = value is None and any(name in valued for name in names[-1:])
        if row.ends and is_operand and not is_option:
            is_over = is_surely_over = True


def _split(text: str, attached: frozenset[str]) -> tuple[tuple[str, ...], str | None]:
    """The names of the options in a word, and the value attached to the last, if it is one of `attached`."""
    if text.startswith("--"):
        name, equals, value = text.partition("=")
        return (name,), value if equals else None
    names: list[str] = []
    letters = text.removeprefix("-")
    for place, letter in enumerate(letters, 1):
        names.append(f"-{letter}")
        if names[-1] in attached:
            return tuple(names), letters[place:] or None
    return tuple(names), None


def option_words(words: Sequence[Word], row: Program, options: str) -> Iterator[Word]:
    """The values of these options, attached or as the next word."""
    for argument in read_arguments(words, row):
        if argument.has(options):
            following = words[argument.index + 1 : argument.index + 2]
            yield from [Word(argument.value)] if argument.value else following
