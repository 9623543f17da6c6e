"""Options known to write or execute, by program, and how they are found among the words of a command."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from crushpy.core.messages import Data
from crushpy.permissions.shell.ast import Word, word_set

Risks = dict[int, str]
"""Why a word is risky, as the end of a sentence, by the index of the word."""


class Risk(Data, frozen=True, forbid_unknown_fields=True):
    """Which options of one program write or execute."""

    short: str = ""
    """Letters of risky options."""
    long: str = ""
    """Risky long options without dashes, separated by spaces; abbreviations count."""
    values: str = ""
    """Letters of harmless options that take an attached value."""
    operands: bool = False
    """True if every operand is written to."""
    option_files: bool = False
    """True if it reads options from a file given as `@name`."""


class _RiskyOptions(Data, frozen=True, forbid_unknown_fields=True):
    """The contents of `risky_options.toml`."""

    programs: dict[str, Risk]
    git: dict[str, Risk]
    """By subcommand."""
    git_operands: dict[str, tuple[str, ...]]
    """Words after a subcommand with which git writes or executes."""


_OPTIONS = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_RiskyOptions)
PROGRAMS = _OPTIONS.programs


def option_risks(words: Sequence[Word], risk: Risk, program: str = "") -> Risks:
    """Risky words of a program, or of a subcommand whose full name is `program`, with ordinary options."""
    risks: Risks = {}
    program = program or words[0].text
    has_options = bool(risk.short or risk.long)
    options_over = False
    for index, word in enumerate(words[1:], 1):
        if word.kind != "literal":
            if has_options and not options_over and word.may_be_option:
                risks[index] = "it could turn out to be an option that writes or executes"
            elif risk.operands:
                risks[index] = f"{program} writes to it"
        elif word.text == "--" and not words[index - 1].is_option:
            options_over = True  # after an option, `--` could be that option's value
        elif risk.option_files and word.text.startswith("@"):
            risks[index] = f"{program} takes options from that file"
        elif not word.is_option or options_over:
            if risk.operands and word.text not in ("-", "/dev/null", "/dev/stdout", "/dev/stderr"):
                risks[index] = f"{program} writes to it"
        elif (attached := option_value(word.text, risk)) is not None:
            risks[index] = f"with it {program} can write or execute"
            if not attached and index + 1 < len(words):
                risks[index + 1] = f"it is what {word.text} stands for"
    return risks


def option_value(text: str, risk: Risk) -> str | None:
    """None for any other option, otherwise the value attached to one of `risk`."""
    if text.startswith("--"):
        name, _, value = text[2:].partition("=")
        return value if _is_long(name, risk.long.split()) else None
    # Some programs take long options with one dash (go test -exec).
    name, _, value = text[1:].partition("=")
    if name in risk.long.split():
        return value
    for index, letter in enumerate(text[1:], 2):
        if letter in risk.short:
            return text[index:]
        if letter in risk.values:
            return None
    return None


def _is_long(name: str, options: Sequence[str]) -> bool:
    """True if `name` is one of the long options or an abbreviation of one."""
    return bool(name) and any(option.startswith((name, name.lower())) for option in options)


# --- git: a rule `bash(git)` covers only what reads


_VALUED_GLOBALS = word_set("-c -C --git-dir --work-tree --namespace --exec-path --config-env")
_READS = word_set(
    "log status diff show blame annotate shortlog describe rev-parse rev-list ls-files ls-tree cat-file"
    " grep merge-base name-rev for-each-ref show-ref diff-tree diff-index diff-files cherry count-objects"
    " whatchanged range-diff check-ignore check-attr check-mailmap version help branch tag verify-commit"
    " verify-tag show-branch ls-remote var"
)
_LISTING = word_set("--list --contains --no-contains --merged --no-merged --points-at --show-current")
_NOT_LISTING = re.compile(r"--no-(?!contains|merged|color|column)")
"""An option that cancels one for listing."""

_RISKY_EVERYWHERE = "output output-directory ext-diff upload-pack receive-pack exec extcmd template"
"""With every subcommand."""
_NETWORK = frozenset(("clone", "fetch", "pull", "push", "ls-remote", "remote", "submodule"))


_NOT_REPOSITORY = frozenset(("ls-remote", "help"))
"""They read something other than the repository."""
_READING_FORMS = frozenset(
    (
        *(("stash", "list"), ("stash", "show"), ("worktree", "list"), ("remote", ""), ("remote", "get-url")),
        *(("reflog", ""), ("reflog", "show"), ("submodule", "status"), ("notes", "list"), ("notes", "show")),
        ("bisect", "log"),
    )
)
_CONFIG_READ_OPTIONS = frozenset(("--get", "--get-all", "--get-regexp", "--list", "-l"))
_OUTSIDE_OPTIONS = Risk("", "no-index contents git-dir file from-file pathspec-from-file")
"""With these, git reads files of other folders or takes names from a file."""


def git_reads(words: Sequence[Word]) -> bool:
    """True if git only reads its repository, apart from what the repository's settings make it run."""
    if len(words) < 2 or any(word.kind == "unknown" for word in words):
        return False
    name, rest = words[1].text, words[2:]
    options = [word.text for word in rest if word.is_option]
    if name in _NOT_REPOSITORY or any(option_value(text, _OUTSIDE_OPTIONS) is not None for text in options):
        return False
    if name in _READS or name == "--version":
        return not git_risks(words)
    operand = next((word.text for word in rest if not word.is_option), "")
    reads_config = name == "config" and any(text in _CONFIG_READ_OPTIONS for text in options)
    return ((name, operand) in _READING_FORMS or reads_config) and not _subcommand_risks(name, words, 1)


_KEEPS_REPOSITORY = word_set(
    "archive format-patch bundle request-pull send-email fast-export fsck credential difftool clone apply"
)
"""They write, but not below `.git`."""


def git_changes(words: Sequence[Word]) -> bool:
    """True if git may change the repository itself."""
    index = _subcommand_index(words)
    if not index:
        return False
    name, rest = words[index], words[index + 1 :]
    if name.kind != "literal":
        return True
    if name.text in ("branch", "tag"):
        return bool(_subcommand_risks(name.text, words, index))
    operand = next((word.text for word in rest if not word.is_option), "")
    if name.text == "config":
        return not any(word.text in _CONFIG_READ_OPTIONS for word in rest)
    is_harmless = (
        name.text in _READS | _NOT_REPOSITORY | _KEEPS_REPOSITORY or (name.text, operand) in _READING_FORMS
    )
    return not is_harmless


_KNOWN_SUBCOMMANDS = (
    _READS
    | {*_OPTIONS.git, *_OPTIONS.git_operands}
    | word_set("add am apply cherry-pick config gc init merge mv restore revert rm")
)


def is_known_git(words: Sequence[Word]) -> bool:
    """True if all that a git command would run is among its risky words."""
    return words[_subcommand_index(words)].text in _KNOWN_SUBCOMMANDS


def is_git_command(words: Sequence[Word], index: int) -> bool:
    """Whether a risky word of git may be a command that it runs, not its subcommand or a new name."""
    start = _subcommand_index(words)
    return index != start and words[start].text not in ("branch", "tag", "config")


def _subcommand_index(words: Sequence[Word]) -> int:
    """The index of the subcommand; 0 if there is none."""
    index = 1
    while index < len(words) and words[index].text.startswith("-"):
        index += 2 if words[index].text in _VALUED_GLOBALS else 1
    return index if index < len(words) else 0


def git_risks(words: Sequence[Word]) -> dict[int, str]:
    """Risky words of a git command, by index."""
    risks: dict[int, str] = {}
    index = 1
    while index < len(words) and words[index].text.startswith("-"):
        word = words[index]
        name = word.text.partition("=")[0]
        if word.text not in ("--version", "--help"):
            risks[index] = "it can make git execute a program"
            if word.text in _VALUED_GLOBALS or name == "-c":
                index += 1
                risks[index] = "it is the value of an option that can make git execute a program"
        index += 1
    if index >= len(words):
        return risks
    subcommand = words[index]
    if subcommand.kind != "literal":
        risks[index] = "the git subcommand is unknown"
    elif subcommand.text not in _READS:
        risks[index] = f"git {subcommand.text} can write or execute"
    return risks | _subcommand_risks(subcommand.text, words, index)


def _subcommand_risks(name: str, words: Sequence[Word], start: int) -> dict[int, str]:
    risk = _OPTIONS.git.get(name, Risk())
    risk = msgspec.structs.replace(risk, long=f"{_RISKY_EVERYWHERE} {risk.long}")
    risks = {start + at: why for at, why in option_risks(words[start:], risk, f"git {name}").items()}
    operands: list[int] = []
    listing = options_over = takes_back = False
    for index, word in enumerate(words[start + 1 :], start + 1):
        if word.kind == "literal" and word.text == "--" and not words[index - 1].is_option:
            options_over = True
        elif word.is_option and not options_over:
            listing = listing or word.text in ("-l", "-n") or word.text.partition("=")[0] in _LISTING
            takes_back = takes_back or bool(_NOT_LISTING.match(word.text))
        else:
            operands.append(index)
            is_network = name in _NETWORK and word.kind == "literal"
            if is_network and ("::" in word.text or (name == "push" and word.text[:1] in "+:")):
                risks[index] = f"git {name} can execute or delete with it"
    return risks | _operand_risks(name, words, operands, listing and not takes_back)


def _operand_risks(name: str, words: Sequence[Word], operands: list[int], listing: bool) -> dict[int, str]:
    if name in ("branch", "tag") and not listing:
        return dict.fromkeys(operands, f"git {name} would make or move one of that name")
    if name == "config":  # `git config key` reads; nearly anything else can set what git executes
        reads = _CONFIG_READ_OPTIONS | {"--get-urlmatch"}
        if all(word.text in reads | {"--show-origin", "--global"} for word in words if word.is_option):
            first = 2 if any(word.text in reads for word in words) else 1
            return dict.fromkeys(operands[first:], "git config would set something git executes")
        return dict.fromkeys(range(2, len(words)), "git config would change settings, which git executes")
    risky = _OPTIONS.git_operands.get(name, ())
    if not operands or not risky:
        return {}
    first = operands[0]
    if words[first].kind != "literal" or words[first].text in risky:
        return dict.fromkeys([first, *operands[1:]], f"git {name} {words[first].text} can write or execute")
    return {}
