"""What a shell command would do, as data: its simple commands, their words, and its redirections."""

import shlex
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

    @property
    def is_option(self) -> bool:
        return self.kind == "literal" and self.text.startswith("-") and self.text != "-"

    @property
    def may_be_option(self) -> bool:
        """Not a literal, and it could turn out to begin with `-`."""
        if self.kind == "pattern":
            return self.text[:1] in "-*?[{!+@"
        return self.kind == "unknown" and self.head[:1] in ("", "-")


UNKNOWN = Word("...", "unknown")
"""Words that come from elsewhere: what xargs reads."""


class Redirect(Data, frozen=True):
    """A file that the shell itself opens for a command."""

    target: Word
    writes: bool


class SimpleCommand(Data, frozen=True):
    words: tuple[Word, ...]
    inner: tuple["SimpleCommand", ...] = ()
    """What it would run in turn, if that could be read (`env CI=1 git log`, `bash -c '...'`)."""
    skip: int = 0
    """How many of its words come before those of its one inner command; 0 for `bash -c`."""
    transparent: bool = False
    """True if only the inner commands matter. A `sudo` must be spelled by the rule."""
    stdin: Literal["", "pipe", "redirection"] = ""
    """Where the line makes it read its input from."""

    @property
    def program(self) -> str:
        """The program's name without its folder."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""

    def __str__(self) -> str:
        """As a shell would read it: words that are known are quoted where they need it."""
        return " ".join(
            shlex.quote(word.text) if word.kind == "literal" else word.text for word in self.words
        )


class ShellReading(Data, frozen=True):
    """What a command line would do. Complete only for a literal line."""

    commands: tuple[SimpleCommand, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    not_literal: str = ""
    """Why the line is not literal, so that no rule allows it; empty for a literal line."""
    broken: bool = False
    """True if the line could not be parsed to its end."""

    @property
    def all_commands(self) -> list[SimpleCommand]:
        """Its commands, each with all that it would run in turn."""
        return [each for command in self.commands for each in with_inner(command)]


def with_inner(command: SimpleCommand) -> Iterator[SimpleCommand]:
    """The command and all that it would run in turn."""
    yield command
    for inner in command.inner:
        yield from with_inner(inner)


def word_set(text: str) -> frozenset[str]:
    """The words of `text`: how the tables of this package are written."""
    return frozenset(text.split())
