"""The paths a command writes, as far as its words tell, and whether writing them asks."""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from crushpy.core.access import Access, Privileges
from crushpy.core.messages import Data
from crushpy.permissions.decision import Decision, decide_path
from crushpy.permissions.path_rules import TouchedPath, is_guarded
from crushpy.permissions.read_only_commands import CommandLine
from crushpy.permissions.risky_options import Risk, option_value
from crushpy.permissions.rules import WRITE
from crushpy.permissions.shell.ast import SimpleCommand, Word, word_set

_CREATING_PROGRAMS = word_set("mkdir touch mkfifo")
_CHANGING_PROGRAMS = word_set("rm rmdir unlink shred truncate tee gzip gunzip bzip2 bunzip2 xz unxz zstd")
_FIRST_OPERAND_IS_MODE = word_set("chmod chown chgrp setfacl chattr")
"""The first operand is not a file."""
_LAST_OPERAND_PROGRAMS = word_set("cp ln install")
_VALUED_LETTERS = {
    **{"truncate": "sr", "touch": "rdt", "mkdir": "m", "install": "mogtS"},
    **dict.fromkeys(("cp", "mv", "ln"), "tS"),
}
"""Letters of options that take a value."""
_OUTPUT_OPTIONS = {
    "curl": Risk("o", "output"),
    "wget": Risk("OP", "output-document directory-prefix"),
    "tar": Risk("C", "directory"),
    "unzip": Risk("d"),
    "sort": Risk("o", "output"),
}
"""Options that name a file or folder to write."""


class WrittenWord(Data, frozen=True):
    """One word that names a file or folder a command writes."""

    word: Word
    creates: bool = False
    """True if the command only creates what does not exist yet, so nothing is lost."""
    into: tuple[str, ...] = ()
    """The names created inside the word's path if that is an existing folder."""


def written_words(command: SimpleCommand) -> list[WrittenWord]:
    """The words this one simple command would write to, if its program is known."""
    program, words = command.program, command.words[1:]
    operands = list(_operands(words, _VALUED_LETTERS.get(program, "")))
    if program in _CREATING_PROGRAMS:
        return [WrittenWord(word, creates=True) for word in operands]
    if program in _CHANGING_PROGRAMS:
        return [WrittenWord(word) for word in operands]
    if program in _FIRST_OPERAND_IS_MODE:
        return [WrittenWord(word, creates=True) for word in operands[1:]]  # the content stays
    if program in _LAST_OPERAND_PROGRAMS or program == "mv":
        folders = list(_option_words(words, Risk("t", "target-directory")))
        target = folders or operands[-1:]
        sources = operands if folders else operands[:-1]
        moved = [WrittenWord(word) for word in sources] if program == "mv" else []
        names = tuple(word.text.rstrip("/").rpartition("/")[2] for word in sources)
        return [*moved, *(WrittenWord(word, into=names) for word in target)]
    options = [word.text for word in words if word.is_option]
    in_place = any(re.match(r"-[a-zA-Z]*i|--in-place", text) for text in options)
    if program in ("sed", "gsed", "perl") and in_place:
        gives_script = any(re.match(r"-[a-zA-Z]*[ef]$|--expression|--file", text) for text in options)
        return [WrittenWord(word) for word in operands[0 if gives_script else 1 :]]
    if program == "dd":
        return [WrittenWord(Word(word.text[3:])) for word in words if word.text.startswith("of=")]
    if program == "patch":
        return [WrittenWord(word) for word in operands[:1]] or [WrittenWord(Word("."))]
    if program == "find" and any(word.text == "-delete" for word in words):
        starts = list(takewhile(lambda word: not re.match(r"-|[(!]$", word.text), words))
        return [WrittenWord(word) for word in starts or [Word(".")]]
    return [
        WrittenWord(word, into=("\1",)) for word in _option_words(words, _OUTPUT_OPTIONS.get(program, Risk()))
    ]


def _operands(words: Sequence[Word], valued: str) -> Iterator[Word]:
    skip = options_over = False
    for word in words:
        if skip:
            skip = False
        elif word.text == "--" and not options_over:
            options_over = True
        elif word.is_option and not options_over:
            skip = option_value(word.text, Risk(valued)) == ""
        else:
            yield word


def _option_words(words: Sequence[Word], options: Risk) -> Iterator[Word]:
    """The values of these options, attached or as the next word."""
    for place, word in enumerate(words):
        value = option_value(word.text, options) if word.is_option else None
        if value is not None:
            yield from [Word(value)] if value else words[place + 1 : place + 2]


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
    parts: list[Decision] = []
    for path in paths:
        inner = [f"{path}/{name}" for name in written.into] if Path(path).is_dir() else []
        for each in inner or [path]:
            parts += _decide_path(line, each, creates=written.creates)
    return parts


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
