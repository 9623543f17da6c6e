"""The paths a command writes, as far as its words tell, and whether writing them asks."""

import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path

from crushpy.core.access import Access, Privileges
from crushpy.core.messages import Data
from crushpy.core.own_code import is_in_folder
from crushpy.permissions.decision import Decision, decide_path
from crushpy.permissions.options import option_words, read_arguments
from crushpy.permissions.path_rules import TouchedPath, hidden_from_commands, is_guarded
from crushpy.permissions.program_table import facts
from crushpy.permissions.read_only_commands import CommandLine
from crushpy.permissions.rules import WRITE
from crushpy.permissions.shell.ast import SimpleCommand, Word, word_set
from crushpy.sandbox.hidden_paths import hidden_around, holds_variables


class WrittenWord(Data, frozen=True):
    """One word that names a file or folder a command writes."""

    word: Word
    creates: bool = False
    """True if the command only creates what does not exist yet, so nothing is lost."""
    into: tuple[str, ...] = ()
    """The names created inside the word's path if that is an existing folder."""


def written_words(command: SimpleCommand) -> list[WrittenWord]:
    """The words this one simple command would write to, if its program is known."""
    row, words = facts(command.program), command.words
    arguments = list(read_arguments(words, row))
    operands = [argument.word for argument in arguments if argument.is_operand]
    match row.writes:
        case "new":
            return [WrittenWord(word, creates=True) for word in operands]
        case "all":
            return [WrittenWord(word) for word in operands]
        case "mode":
            return [WrittenWord(word, creates=True) for word in operands[1:]]  # the content stays
        case "last" | "move":
            folders = list(option_words(words, row, row.output))
            target = folders or operands[-1:]
            sources = operands if folders else operands[:-1]
            moved = [WrittenWord(word) for word in sources] if row.writes == "move" else []
            names = tuple(word.text.rstrip("/").rpartition("/")[2] for word in sources)
            return [*moved, *(WrittenWord(word, into=names) for word in target)]
        case "":
            pass
    if any(argument.has(row.in_place) for argument in arguments):
        gives_script = any(argument.has(f"{row.script} {row.inputs}") for argument in arguments)
        return [WrittenWord(word) for word in operands[0 if gives_script else 1 :]]
    if command.program == "dd":
        return [WrittenWord(Word(word.text[3:])) for word in words if word.text.startswith("of=")]
    if command.program == "patch":
        return [WrittenWord(word) for word in operands[:1]] or [WrittenWord(Word("."))]
    if command.program == "find" and any(word.text == "-delete" for word in words):
        starts = list(takewhile(lambda word: not re.match(r"-|[(!]$", word.text), words[1:]))
        return [WrittenWord(word) for word in starts or [Word(".")]]
    return [WrittenWord(word, into=("\1",)) for word in option_words(words, row, row.output)]


_BUILD_OUTPUT = word_set(
    "build dist target node_modules __pycache__ .pytest_cache .mypy_cache .ruff_cache .tox .nox .cache .eggs"
    " htmlcov coverage .coverage .next .nuxt .turbo .parcel-cache .gradle .venv venv out tmp .tmp DerivedData"
)
"""Folders of build output: no work is lost with them."""
_BUILD_SUFFIXES = (".pyc", ".o", ".obj", ".class", ".log", ".tmp", ".egg-info", ".so", ".a", ".swp", "~")
_PRIVATE = tuple({os.path.realpath(folder) for folder in ("/tmp", "/var/tmp", tempfile.gettempdir())})  # noqa: S108
"""Each conversation has its own."""


def decide_word(line: CommandLine, written: WrittenWord, shown: str) -> list[Decision]:
    """Decisions about one word of the command `shown`, with what it needs outside the workspace."""
    paths = line.paths_of(written.word)
    if paths is None:
        unknown = f"what `{shown[:60]}` changes is unknown: {written.word.text[:60]}"
        return [] if written.creates else [Decision("ask", unknown)]
    changed = _changed_paths(paths, written)
    return [part for path in changed for part in _decide_path(line, path, creates=written.creates)]


def _changed_paths(paths: Iterable[str], written: WrittenWord) -> Iterator[str]:
    for path in paths:
        inner = [f"{path}/{name}" for name in written.into] if Path(path).is_dir() else []
        yield from inner or [path]


def hidden_writes(line: CommandLine, words: Iterable[WrittenWord], folders: Iterable[str]) -> list[Decision]:
    """Refuses writes into places that are hidden from commands: the grant would show them to all programs of
    the line. `folders`: those that the agent asks for."""
    paths = (path for written in words for path in _changed_paths(line.paths_of(written.word) or (), written))
    workspace = os.path.realpath(line.workspace)
    found: list[Decision] = []
    for path in dict.fromkeys(os.path.realpath(line.workspace / each) for each in (*paths, *folders)):
        if any(is_in_folder(path, folder) for folder in _PRIVATE):
            continue
        variables = holds_variables(os.path.basename(path)) and not is_in_folder(path, workspace)  # noqa: PTH119
        places = (*hidden_from_commands(), *((path,) if variables or Path(path).is_socket() else ()))
        if place := hidden_around(path, places, workspace, line.guard.opened):
            why = "only sandbox.read and sandbox.write in the settings open a hidden place"
            found.append(Decision("deny", f"{why}: {place}", outside=True))
    return found


def _decide_path(line: CommandLine, path: str, *, creates: bool) -> list[Decision]:
    rules, workspace = line.rules, line.workspace
    target = TouchedPath(path, workspace, rules.folders)
    if not target.inside:
        if any(target.real.is_relative_to(folder) for folder in _PRIVATE):
            return []
        folder = target.real if target.real.is_dir() and not creates else _existing(target.real.parent)
        return [Decision("allow", "", needs=Privileges(write=(str(folder),)))]
    decided = decide_path(Access(WRITE, "path", str(target.written), writes=True), rules, workspace)
    by_rule = decided.verdict != "ask" or not decided.suggested
    inside = target.real.relative_to(target.root).parts
    is_output = bool(set(inside) & _BUILD_OUTPUT) or target.real.name.endswith(_BUILD_SUFFIXES)
    lost = os.path.lexists(target.written) and not creates and not is_output
    return [decided] if by_rule or lost or is_guarded(target) else []


def _existing(folder: Path) -> Path:
    """The nearest folder that exists."""
    return next((each for each in (folder, *folder.parents) if each.is_dir()), folder)
