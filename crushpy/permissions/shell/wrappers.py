"""Finds the command inside a command: `env X=1 git log`, `timeout 5 pytest`, `xargs wc`, `bash -c '...'`."""

import re
from collections.abc import Callable, Sequence
from itertools import takewhile

from crushpy.permissions.options import read_arguments
from crushpy.permissions.program_table import Program, facts, option_names
from crushpy.permissions.shell.ast import UNKNOWN, SimpleCommand, Word, word_set
from crushpy.util.lazy_pattern import lazy_pattern

ReadScript = Callable[[str], tuple[SimpleCommand, ...]]
Fail = Callable[[str], None]

_HARMLESS_ASSIGNMENT = (
    r"(?:LANG|LANGUAGE|LC_\w+|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR(?:_FORCE)?|CI|NODE_ENV"
    r"|DEBIAN_FRONTEND|PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|IOENCODING|UTF8|FAULTHANDLER)"
    r"|RUST_(?:BACKTRACE|LOG)|GIT_(?:TERMINAL_PROMPT|OPTIONAL_LOCKS)|CARGO_TERM_COLOR|GO(?:OS|ARCH|MAXPROCS))"
    r"=[\w.,:@%+-]*|(?:GIT_)?PAGER=cat"
)
"""Variables that change no program into another. Compiled if there is an assignment."""
_ASSIGNMENT = lazy_pattern(r"[A-Za-z_]\w*(?:\[.*\])?\+?=")
_SHELL_FLAGS = lazy_pattern(r"-[eulx]+")
_SHELL_SCRIPT = lazy_pattern(r"-[eulx]*c")
SHELLS = frozenset(("sh", "bash", "dash"))


_HARMLESS_GLOBALS = word_set("--no-pager -P --no-optional-locks --literal-pathspecs --no-replace-objects")


def is_harmless_assignment(text: str) -> bool:
    return bool(re.fullmatch(_HARMLESS_ASSIGNMENT, text, re.ASCII))


def harmless_globals(words: Sequence[str]) -> int:
    """How many options follow `git` that change nothing: a rule need not spell them."""
    options = takewhile(_HARMLESS_GLOBALS.__contains__, words[1:]) if words and words[0] == "git" else ()
    return len(list(options))


def unwrap(command: SimpleCommand, read_script: ReadScript, fail: Fail) -> SimpleCommand:
    """`command` with what it would run in turn, if that can be read; else as it is.

    `fail` is told why the line is not literal.
    """
    texts = [word.text for word in command.words]
    if dropped := harmless_globals(texts):
        return SimpleCommand((command.words[0], *command.words[1 + dropped :]))
    if texts[0] == "command" and len(texts) > 2 and texts[1] in ("-v", "-V"):  # it runs nothing
        return SimpleCommand((Word("type"), *command.words[2:]))
    if command.program in SHELLS:
        script = _script(command.words)
        if script is None:
            # An option after `-c` would move its script.
            if any(word.kind != "literal" or re.match(r"[-+].*c", word.text) for word in command.words):
                fail(f"what {command.program} runs cannot be read")
            return command
        return SimpleCommand(command.words, read_script(script), transparent=True)
    second = command.words[1] if len(command.words) > 1 else UNKNOWN
    names = 2 if second.kind == "literal" and facts(command.program, second.text).runs else 1
    row = facts(command.program, second.text) if names == 2 else facts(command.program)
    if row.runs not in ("inner", "spelled"):
        return command
    start = _inner_start(command.words, names, row)
    if start is None:
        if command.program == "time":  # bash reads the words after it in its own way
            fail("what time runs cannot be read")
        return command
    while (
        command.program in ("env", "time")
        and start < len(command.words)
        and (assignment := _ASSIGNMENT.match(command.words[start].text))
    ):
        if not is_harmless_assignment(command.words[start].text):
            fail(f"setting {assignment[0][:-1]} can change what is executed")
        start += 1
    words = command.words[start:]
    if not words:
        return command
    if command.program == "xargs":
        words = _with_input(words, command.words[1:start])
    inner = unwrap(SimpleCommand(words), read_script, fail)
    return SimpleCommand(command.words, (inner,), start, row.runs == "inner")


def _inner_start(words: Sequence[Word], names: int, row: Program) -> int | None:
    """Where the inner command begins, after the `names` of the program and its options; None if unknown."""
    known = option_names(f"{row.flags} {row.values}")
    start = len(words)
    for argument in read_arguments(words[names - 1 :], row):
        if argument.word.kind != "literal" and argument.word.text.startswith("-"):
            return None
        if argument.is_operand:
            start = argument.index + names - 1
            break
        if not set(argument.names) <= (set() if argument.is_value else known):
            return None
    if words[0].text in ("env", "time") and start < len(words) and words[start].text == "-":
        return None
    start += row.before
    is_known = start <= len(words) and all(word.kind == "literal" for word in words[:start])
    return start if is_known else None


def _with_input(words: tuple[Word, ...], options: Sequence[Word]) -> tuple[Word, ...]:
    """The words of xargs' command with what it reads put in."""
    place = ""
    for index, option in enumerate(options):
        if option.text.startswith("-I"):
            place = option.text[2:] or (options[index + 1].text if index + 1 < len(options) else "")
    if not place:
        return (*words, UNKNOWN)
    return tuple(
        Word(word.text, "unknown", word.text.partition(place)[0]) if place in word.text else word
        for word in words
    )


def _script(words: Sequence[Word]) -> str | None:
    """What `sh -c` would run, where it is spelled out."""
    index = 1
    while index < len(words) and words[index].kind == "literal":
        text = words[index].text
        if _SHELL_SCRIPT.fullmatch(text):
            script = words[index + 1] if index + 1 < len(words) else UNKNOWN
            plain = script.kind == "literal" and not script.text.startswith(("-", "+"))
            return script.text if plain else None
        if text == "-o" and index + 1 < len(words) and words[index + 1].text == "pipefail":
            index += 2
        elif _SHELL_FLAGS.fullmatch(text) or text in ("--login", "--norc", "--noprofile", "--posix"):
            index += 1
        else:
            return None
    return None
