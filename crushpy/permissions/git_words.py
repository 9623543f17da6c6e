"""Words of git that write or execute. A rule `bash(git)` covers only what reads."""

from collections.abc import Sequence

import msgspec

from crushpy.permissions.risky_options import Risk, option_risks
from crushpy.permissions.shell.ast import Word, word_set

HARMLESS_GLOBALS = word_set("--no-pager -P --no-optional-locks --literal-pathspecs --no-replace-objects")
"""Options before the subcommand that change nothing: a rule need not spell them."""

_INFO_OPTIONS = frozenset(("--version", "--help"))
_VALUED_GLOBALS = word_set("-c -C --git-dir --work-tree --namespace --exec-path --config-env")
_READS = word_set(
    "log status diff show blame annotate shortlog describe rev-parse rev-list ls-files ls-tree cat-file"
    " grep merge-base name-rev for-each-ref show-ref diff-tree diff-index diff-files cherry count-objects"
    " whatchanged range-diff check-ignore check-attr check-mailmap version help branch tag verify-commit"
    " verify-tag show-branch ls-remote var"
)
_LISTING = word_set(
    "--list --contains --no-contains --merged --no-merged --points-at --format --show-current"
)

_RISKY_EVERYWHERE = "output output-directory ext-diff upload-pack receive-pack exec extcmd template"
_RISKY_OPTIONS = {
    "grep": Risk("O", "open-files-in-pager", "ABCefm"),
    "branch": Risk("dDmMcCfu", "delete move copy force set-upstream-to unset-upstream edit-description"),
    "tag": Risk("dasfmFu", "delete annotate sign force local-user create-reflog"),
    "log": Risk(values="nLSG"),
    "show": Risk(values="nLSG"),
    "commit": Risk(values="mFCct"),
    "push": Risk("fd", "force force-with-lease delete mirror prune", "o"),
    "fetch": Risk("uf"),
    "pull": Risk("f"),
    "clone": Risk("cu", "config", "bo"),
    "rebase": Risk("x"),
    "reset": Risk("", "hard merge keep"),
    "clean": Risk("f", "force"),
    "checkout": Risk("fB", "force"),
    "switch": Risk("fC", "force discard-changes force-create"),
    "archive": Risk("o", "remote"),
    "format-patch": Risk("o"),
    "difftool": Risk("xt", "tool"),
    "mergetool": Risk("t", "tool"),
    "help": Risk("w", "web"),
}
"""By subcommand; the options above are risky with each."""
_RISKY_OPERANDS: dict[str, tuple[str, ...]] = {
    "bisect": ("run",),
    "submodule": ("foreach", "add", "update", "deinit"),
    "stash": ("drop", "clear"),
    "worktree": ("add", "remove", "move", "prune"),
    "remote": ("add", "remove", "rm", "rename", "set-url", "update", "prune"),
    "reflog": ("delete", "expire", "drop"),
    "notes": ("add", "remove", "prune", "edit", "append", "merge"),
}
_NETWORK = frozenset(("clone", "fetch", "pull", "push", "ls-remote", "remote", "submodule"))


_NOT_REPOSITORY = frozenset(("ls-remote", "help"))
"""They read something other than the repository."""
_READING_FORMS = frozenset(
    (
        *(("stash", "list"), ("stash", "show"), ("worktree", "list"), ("remote", ""), ("remote", "get-url")),
        *(("reflog", ""), ("reflog", "show"), ("submodule", "status"), ("notes", "list"), ("notes", "show")),
        *(("bisect", "log"), ("bisect", "view")),
    )
)
_CONFIG_READ_OPTIONS = frozenset(("--get", "--get-all", "--get-regexp", "--list", "-l"))
_OUTSIDE_OPTIONS = ("no-index", "contents", "git-dir", "file", "from-file", "pathspec-from-file")
"""With these, git reads files of other folders or takes names from a file."""


def git_reads(words: Sequence[Word]) -> bool:
    """True if git only reads its repository, apart from what the repository's settings make it run."""
    index = 1
    while index < len(words) and words[index].kind == "literal" and words[index].text in HARMLESS_GLOBALS:
        index += 1
    if index >= len(words) or any(word.kind == "unknown" for word in words):
        return False
    name, rest = words[index].text, words[index + 1 :]
    options = [word.text for word in rest if word.is_option]
    if any(text[2:].partition("=")[0] in _OUTSIDE_OPTIONS for text in options) or name in _NOT_REPOSITORY:
        return False
    if name in _READS or name == "--version":
        return not git_risks(words)
    operand = next((word.text for word in rest if not word.is_option), "")
    reads_config = name == "config" and any(text in _CONFIG_READ_OPTIONS for text in options)
    return ((name, operand) in _READING_FORMS or reads_config) and not _subcommand_risks(name, words, index)


_KEEPS_REPOSITORY = word_set(
    "archive format-patch bundle request-pull send-email fast-export fsck credential difftool clone apply"
)
"""They write, but not below `.git`."""


def git_changes(words: Sequence[Word]) -> bool:
    """True if git may change the repository itself."""
    index = 1
    while index < len(words) and words[index].text.startswith("-"):
        index += 2 if words[index].text in _VALUED_GLOBALS else 1
    if index >= len(words):
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


def git_risks(words: Sequence[Word]) -> dict[int, str]:
    """Risky words of a git command, by index."""
    risks: dict[int, str] = {}
    index = 1
    while index < len(words) and words[index].text.startswith("-"):
        word = words[index]
        name = word.text.partition("=")[0]
        if word.kind != "literal" or word.text not in HARMLESS_GLOBALS | _INFO_OPTIONS:
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
    risk = _RISKY_OPTIONS.get(name, Risk())
    risk = msgspec.structs.replace(risk, long=f"{_RISKY_EVERYWHERE} {risk.long}")
    risks = {start + at: why for at, why in option_risks(words[start:], risk, f"git {name}").items()}
    operands: list[int] = []
    listing = options_over = False
    for index, word in enumerate(words[start + 1 :], start + 1):
        if word.kind == "literal" and word.text == "--" and not words[index - 1].is_option:
            options_over = True
        elif word.is_option and not options_over:
            listing = listing or word.text in ("-l", "-n") or word.text.partition("=")[0] in _LISTING
        else:
            operands.append(index)
            is_network = name in _NETWORK and word.kind == "literal"
            if is_network and ("::" in word.text or (name == "push" and word.text[:1] in "+:")):
                risks[index] = f"git {name} can execute or delete with it"
    return risks | _operand_risks(name, words, operands, listing)


def _operand_risks(name: str, words: Sequence[Word], operands: list[int], listing: bool) -> dict[int, str]:
    if name in ("branch", "tag") and not listing:
        return dict.fromkeys(operands, f"git {name} would make or move one of that name")
    if name == "config":  # `git config key` reads; nearly anything else can set what git executes
        reads = _CONFIG_READ_OPTIONS | {"--get-urlmatch"}
        if all(word.text in reads | {"--show-origin", "--global"} for word in words if word.is_option):
            first = 2 if any(word.text in reads for word in words) else 1
            return dict.fromkeys(operands[first:], "git config would set something git executes")
        return dict.fromkeys(range(2, len(words)), "git config would change settings, which git executes")
    risky = _RISKY_OPERANDS.get(name, ())
    if not operands or not risky:
        return {}
    first = operands[0]
    if words[first].kind != "literal" or words[first].text in risky:
        return dict.fromkeys([first, *operands[1:]], f"git {name} {words[first].text} can write or execute")
    return {}
