"""The words known to write or to execute: a rule covers them only where it spells them."""

from collections.abc import Sequence

from crushpy.permissions.risk.embedded_scripts import interpreter_risks
from crushpy.permissions.risk.risky_options import PROGRAMS, Risks, option_risks
from crushpy.permissions.risk.special_programs import SPECIAL
from crushpy.permissions.shell.ast import SimpleCommand, Word, word_set
from crushpy.permissions.shell.wrappers import RUNNERS, RUNNING_SUBCOMMANDS

ALIKE = {
    **dict.fromkeys(("gawk", "mawk", "nawk"), "awk"),
    **dict.fromkeys(("cc", "g++", "c++", "clang", "clang++"), "gcc"),
    **dict.fromkeys(("fdfind",), "fd"),
    **dict.fromkeys(("gmake",), "make"),
    **dict.fromkeys(("gsed",), "sed"),
    **dict.fromkeys(("py.test",), "pytest"),
    **dict.fromkeys(("basedpyright",), "pyright"),
    **dict.fromkeys(("gradlew",), "gradle"),
    **dict.fromkeys(("mvnw",), "mvn"),
    **dict.fromkeys(("pip3",), "pip"),
}
"""Programs under another name."""

OPERANDS_MATTER = word_set(
    "rm rmdir mv cp ln chmod chown chgrp install truncate shred dd mkdir touch kill pkill killall mkfs mount"
    " umount curl ssh scp sftp rsync nc ncat socat telnet crontab useradd usermod passwd"
    " split csplit unlink patch ed ex vi vim nvim emacs nano"
)
"""What they are given is what they change: a rule that names one of these files covers no other."""


def risky_words(command: SimpleCommand) -> Risks:
    """The risky words of a simple command, by place. One past the last word: what no rule could spell."""
    words, program = command.words, ALIKE.get(command.program, command.program)
    if special := SPECIAL.get(program):
        return special(words)
    risks = interpreter_risks(program, words)
    if risks is not None:
        return risks | _module_risks(words)
    if runs := _runs_rest(program, words):
        return runs
    risk = PROGRAMS.get(program)
    return option_risks(words, risk) if risk is not None else {}


def _module_risks(words: Sequence[Word]) -> Risks:
    """`python -m pytest` is pytest: the words after the module are its own."""
    texts = [word.text if word.kind == "literal" else "" for word in words]
    if "-m" not in texts or not texts[0].rpartition("/")[2].startswith(("python", "pypy")):
        return {}
    start = texts.index("-m") + 1
    inner = risky_words(SimpleCommand(tuple(words[start:]))) if start < len(words) else {}
    return {start + place: why for place, why in inner.items()}


def _runs_rest(program: str, words: Sequence[Word]) -> Risks:
    """A program that runs its own words, in a form that could not be unwrapped."""
    if program in RUNNERS:
        start = 1
    else:
        pair = (program, words[1].text if len(words) > 1 else "")
        start = 1 if pair in RUNNING_SUBCOMMANDS or (program,) in RUNNING_SUBCOMMANDS else len(words)
    if program == "command" and len(words) > 1 and words[1].text in ("-v", "-V"):
        return {}
    return dict.fromkeys(range(start, len(words)), f"{program} runs it")
