"""Commands that only read: what they would read, and whether that is free."""

import glob
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path

from crushpy.core.access import Access
from crushpy.permissions.decide_path import decide_path
from crushpy.permissions.decision import Decision
from crushpy.permissions.execution_context import ExecutionContext
from crushpy.permissions.risk.git_words import git_reads
from crushpy.permissions.risk.readers import is_plain_reader, read_words
from crushpy.permissions.rules import READ, RuleSet
from crushpy.permissions.shell.ast import SimpleCommand, Word

_MOST_FILES = 1_000
"""A pattern that names more is asked about."""


class PlainReading:
    """Judges the commands of one line that only read."""

    def __init__(
        self, folders: Sequence[Path], rules: RuleSet, workspace: Path, guard: ExecutionContext
    ) -> None:
        """`folders`: where the line may run; none where that is not known."""
        self._folders = folders
        self._rules = rules
        self._workspace = workspace
        self._guard = guard

    def parts(self, command: SimpleCommand) -> list[Decision]:
        """One decision for each thing it reads; none where it may do more than read, or that is not known."""
        if command.inner:
            inner = [self.parts(each) for each in command.inner] if command.transparent else []
            return [part for parts in inner for part in parts] if all(inner) else []
        name = command.words[0].text
        if name == "git":
            reads = self._guard.trusted and bool(self._folders) and git_reads(command.words)
            words = [word for word in command.words[2:] if _leads_out(word)]
        else:
            reads = is_plain_reader(command)
            words = list(read_words(command)) if reads else []
        paths = [self._paths(word) for word in words]
        if not reads or None in paths or _is_of_project(name, self._workspace):
            return []
        free = Decision("allow", f"`{str(command)[:60]}` only reads")
        return [
            free,
            *(part for path in dict.fromkeys(chain(*filter(None, paths))) for part in self._read(path)),
        ]

    def held_back(self, command: SimpleCommand) -> str:
        """Why a command that only reads is asked about all the same, as the end of a sentence."""
        if command.words[0].text == "git" and not self._guard.trusted and git_reads(command.words):
            return ": what git runs is up to the project's settings, and the project is not trusted"
        return ""

    def _paths(self, word: Word) -> list[str] | None:
        """What a word names in every folder where the line may run; None where that is not known."""
        if word.kind == "unknown" and word.head == "/dev/fd/":
            return []  # a process substitution: its commands are judged by themselves
        if word.kind == "unknown" or not self._folders or "\0" in word.text:
            return None
        named = [named_paths(word, folder) for folder in self._folders]
        if None in named:
            return None
        paths = list(chain(*filter(None, named)))
        return paths if self._is_minded else list(_shortened(paths))

    def _read(self, path: str) -> list[Decision]:
        decided = decide_path(Access(READ, "path", path), self._rules, self._workspace)
        return [] if decided.verdict == "allow" else [decided]

    @cached_property
    def _is_minded(self) -> bool:
        """True where a rule may forbid one file and not the one beside it."""
        return any(rule.tool == READ for rule in (*self._rules.deny, *self._rules.ask))


def _leads_out(word: Word) -> bool:
    """Whether git would take it for a file outside the repository, or the shell for a pattern."""
    return word.kind != "literal" or word.text.startswith("/") or ".." in word.text.split("/")


def named_paths(word: Word, folder: Path) -> list[str] | None:
    """The paths that a word names; None where that cannot be told."""
    text = word.text
    if word.kind == "literal":
        return [str(folder / text)]
    if text.startswith("~"):
        home, _, rest = text.partition("/")
        if home != "~":
            return None
        folder, text = Path.home(), rest
    if not re.search(r"[*?\[{]", text):
        return [str(folder / text)]
    if re.search(r"[\[{}\\]", text):
        return None  # bash and Python read these in different ways
    pattern = text if text.startswith("/") else f"{glob.escape(str(folder))}/{text}"
    found = list(islice(glob.iglob(pattern), _MOST_FILES + 1))  # noqa: PTH207 (hides what bash hides)
    is_option = any(os.path.relpath(path, folder).startswith("-") for path in found) and text[0] in "*?"
    return None if len(found) > _MOST_FILES or is_option else found or [str(folder / text)]


def _shortened(paths: Sequence[str]) -> Iterator[str]:
    """Enough of them to stand for all where only their place matters: each folder once, and each link."""
    folders: set[str] = set()
    for path in paths:
        folder = os.path.dirname(path)  # noqa: PTH120
        if folder not in folders or os.path.islink(path):  # noqa: PTH114
            folders.add(folder)
            yield path


def _is_of_project(name: str, workspace: Path) -> bool:
    """True where the shell would find the program in the workspace: it is not the system's."""
    found = shutil.which(name)
    return found is not None and Path(found).parent.resolve().is_relative_to(workspace.resolve())
