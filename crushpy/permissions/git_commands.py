"""What a git command would do: a rule `bash(git)` covers only what reads."""

import re
from collections.abc import Sequence

import msgspec

from crushpy.permissions.option_risks import Risks, option_risks
from crushpy.permissions.options import read_arguments
from crushpy.permissions.program_table import Program, facts
from crushpy.permissions.shell.ast import Word, word_set

_GIT = facts("git")
_LISTING = word_set("--list --contains --no-contains --merged --no-merged --points-at --show-current")
_NOT_LISTING = re.compile(r"--no-(?!contains|merged|color|column)")
"""An option that cancels one for listing."""
_CONFIG_READ_OPTIONS = frozenset(("--get", "--get-all", "--get-regexp", "--list", "-l"))


def git_reads(words: Sequence[Word]) -> bool:
    """True if git only reads its repository, apart from what the repository's settings make it run."""
    if len(words) < 2 or any(word.kind == "unknown" for word in words):
        return False
    name, row = words[1].text, facts("git", words[1].text)
    if row.outside or any(argument.has(_GIT.elsewhere) for argument in read_arguments(words, Program())):
        return False
    if row.reads or name == "--version":
        return not git_risks(words)
    reads_config = name == "config" and any(word.text in _CONFIG_READ_OPTIONS for word in words)
    return (_is_reading_form(row, words[2:]) or reads_config) and not _subcommand_risks(words, 1)


def _is_reading_form(row: Program, rest: Sequence[Word]) -> bool:
    return next((word.text for word in rest if not word.is_option), "") in row.reading_words


def git_changes(words: Sequence[Word]) -> bool:
    """True if git may change the repository itself."""
    index = _subcommand_index(words)
    if not index:
        return False
    name, rest, row = words[index], words[index + 1 :], facts("git", words[index].text)
    if name.kind != "literal":
        return True
    if name.text in ("branch", "tag"):
        return bool(_subcommand_risks(words, index))
    if name.text == "config":
        return not any(word.text in _CONFIG_READ_OPTIONS for word in rest)
    return not (row.reads or row.keeps_repository or _is_reading_form(row, rest))


def is_known_git(words: Sequence[Word]) -> bool:
    """True if all that a git command would run is among its risky words."""
    return facts("git", words[_subcommand_index(words)].text).is_plain


def is_git_command(words: Sequence[Word], index: int) -> bool:
    """Whether a risky word of git may be a command that it runs, not its subcommand or a new name."""
    start = _subcommand_index(words)
    return index != start and words[start].text not in ("branch", "tag", "config")


def _subcommand_index(words: Sequence[Word]) -> int:
    """The index of the subcommand; 0 if there is none."""
    return next((argument.index for argument in read_arguments(words, _GIT) if argument.is_operand), 0)


def git_risks(words: Sequence[Word]) -> Risks:
    """Risky words of a git command, by index."""
    start = _subcommand_index(words)
    before = range(1, start or len(words))
    risks = {
        index: "it can make git execute a program"
        for index in before
        if words[index].text not in ("--version", "--help")
    }
    if not start:
        return risks
    subcommand = words[start]
    if subcommand.kind != "literal":
        risks[start] = "the git subcommand is unknown"
    elif not facts("git", subcommand.text).reads:
        risks[start] = f"git {subcommand.text} can write or execute"
    return risks | _subcommand_risks(words, start)


def _subcommand_risks(words: Sequence[Word], start: int) -> Risks:
    name = words[start].text
    row = facts("git", name)
    row = msgspec.structs.replace(row, risky=f"{_GIT.risky} {row.risky}")
    arguments = list(read_arguments(words[start:], row))
    options = [argument.word.text for argument in arguments if argument.names]
    operands = [start + argument.index for argument in arguments if not argument.names]
    risks = {start + at: why for at, why in option_risks(words[start:], row, f"git {name}").items()}
    if name in ("branch", "tag"):
        lists = any(text in ("-l", "-n") or text.partition("=")[0] in _LISTING for text in options)
        if lists and not any(map(_NOT_LISTING.match, options)):
            return risks
        return risks | dict.fromkeys(operands, f"git {name} would make or move one of that name")
    if name == "config":  # `git config key` reads; nearly anything else can set what git executes
        reads = _CONFIG_READ_OPTIONS | {"--get-urlmatch"}
        if set(options) <= reads | {"--show-origin", "--global"}:
            first = 2 if reads & set(options) else 1
            return risks | dict.fromkeys(operands[first:], "git config would set something git executes")
        why = "git config would change settings, which git executes"
        return risks | dict.fromkeys(range(2, len(words)), why)
    first = words[operands[0]] if operands and row.risky_words else Word("")
    if first.kind != "literal" or first.text in row.risky_words:
        return risks | dict.fromkeys(operands, f"git {name} {first.text} can write or execute")
    return risks
