"""What a shell command would do, as data: its simple commands, their words, and its redirections."""

from collections.abc import Iterator
from typing import Literal

from crushpy.core.messages import Data


class Word(Data, frozen=True):
    """One word of a command, quotes removed."""

    text: str
    """What the program gets; for an unknown word, the source."""
    kind: Literal["literal", "pattern", "unknown"] = "literal"
    """pattern: names files (`*.py`, `~/x`, `{a,b}`). unknown: holds a value only the shell will know."""
    head: str = ""
    """How an unknown word begins, as far as that is known."""
    splits: bool = False
    """True if it may turn into several words, or none."""

    @property
    def is_option(self) -> bool:
        return self.kind == "literal" and self.text.startswith("-") and self.text != "-"

    @property
    def may_be_option(self) -> bool:
        """Not a literal, and it could turn out to begin with `-`."""
        if self.kind == "pattern":
            return self.text[:1] in "-*?[{!+@"
        return self.kind == "unknown" and (self.splits or self.head[:1] in ("", "-"))


UNKNOWN = Word("...", "unknown", splits=True)
"""Words that come from elsewhere: what xargs reads."""


class Assignment(Data, frozen=True):
    """`NAME=value`, before a command or by itself. `value` is None if only the shell knows it."""

    name: str
    value: str | None
    exported: bool = False
    """True if the line hands it on to programs: `export X=1`."""


class Redirect(Data, frozen=True):
    """A file that the shell itself opens for a command."""

    target: Word
    writes: bool


class SimpleCommand(Data, frozen=True):
    """One simple command."""

    words: tuple[Word, ...]
    variables: tuple[Assignment, ...] = ()
    inner: tuple["SimpleCommand", ...] = ()
    """What it would run in turn, where that could be read (`env X=1 git log`, `bash -c '...'`)."""
    skip: int = 0
    """How many of its words come before those of its one inner command; 0 for `bash -c`."""
    transparent: bool = False
    """True if only the inner commands matter. A `sudo` must be spelled by the rule."""

    @property
    def program(self) -> str:
        """The program's name without its folder."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""

    def __str__(self) -> str:
        return " ".join(word.text for word in self.words)


class ShellReading(Data, frozen=True):
    """All that a command line would do, as far as it can be read."""

    commands: tuple[SimpleCommand, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    variables: tuple[Assignment, ...] = ()
    """Assigned by the line itself: they hold for all of its commands."""
    loops: bool = False
    """True if a command may run more than once."""
    unreadable: str = ""
    """Why there may be more to it than this; then only a person can decide."""


def with_inner(command: SimpleCommand) -> Iterator[SimpleCommand]:
    """The command and all that it would run in turn."""
    yield command
    for inner in command.inner:
        yield from with_inner(inner)


def word_set(text: str) -> frozenset[str]:
    """The words of `text`: how the tables of this room are written."""
    return frozenset(text.split())
