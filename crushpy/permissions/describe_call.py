"""Describes what a call would do, for a user who is asked about it: in a sentence, and in a paragraph."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from crushpy.core.access import Access, Privileges
from crushpy.core.mcp_names import MCP_PREFIX
from crushpy.permissions.network_needs import network_needs
from crushpy.permissions.path_rules import TouchedPath, is_guarded
from crushpy.permissions.read_only_commands import is_plain_reader
from crushpy.permissions.shell.ast import SimpleCommand, Word
from crushpy.permissions.shell.line_reader import parse_shell
from crushpy.permissions.written_paths import written_words

MAX_COMMAND_CHARS = 60
"""Of a command in a title; the question shows all of it below."""
MAX_SHOWN_NAMES = 4
"""Programs or files that are named; the rest is counted."""


def describe_call(accesses: Sequence[Access], workspace: Path) -> str:
    """For example "runs seq, echo, sleep; needs network access"; empty if it touches nothing."""
    names_by_verb: dict[str, list[str]] = {}
    for access in accesses:
        for verb, name in _actions(access, workspace):
            names_by_verb.setdefault(verb, []).append(name)
    says = [f"{verb} {_join_names(names)}".strip() for verb, names in names_by_verb.items()]
    needs = Privileges.union(access.needs for access in accesses)
    if needs.network or needs.hosts:
        hosts = "" if needs.network else f": {', '.join(needs.hosts)}"
        says.append(f"needs network access{hosts}")
    says += [f"writes {_join_names(needs.write)}"] if needs.write else []
    return "; ".join([*says, *(["changes .git"] if needs.git else [])])


def question_title(tool: str, accesses: Sequence[Access], workspace: Path, missing: Privileges) -> str:
    """The question about a call in a sentence: "Run `git push`? It needs the network: github.com"."""
    guessed = (network_needs(command, workspace) for access in accesses for command in _commands(access))
    needs = Privileges.union((missing, *(access.needs for access in accesses), *guessed))
    names = _join_names([_subject(access, workspace) for access in accesses])
    kinds = {(access.kind, access.writes) for access in accesses}
    verb = "Use"
    if len(kinds) == 1:
        kind, writes = kinds.pop()
        edits = "Write" if tool == "write" else "Edit"
        verb = {"command": "Run", "host": "Fetch from", "none": "Use"}.get(kind, edits if writes else "Read")
    hosts = f": {', '.join(needs.hosts)}" if needs.hosts and not needs.network else ""
    wanted = [f"the network{hosts}"] if needs.network or needs.hosts else []
    wanted += [f"write access to {_join_names(needs.write)}"] if needs.write else []
    return f"{verb} {names or tool}?" + (f" It needs {' and '.join(wanted)}" if wanted else "")


def stays_inside(access: Access, workspace: Path) -> bool:
    """Whether it is certain that a path or command needs no network and nothing outside the workspace."""
    if access.kind == "path":
        return _is_ordinary(TouchedPath(access.value, workspace))
    if access.kind != "command" or access.needs != Privileges():
        return False
    words = [redirect.target for redirect in parse_shell(access.value).redirects if redirect.writes]
    for command in _commands(access):
        if network_needs(command, workspace) != Privileges():
            return False
        words += command.words
    return all(
        word.kind == "literal"
        and not word.text.startswith("~")
        and (_is_ordinary(TouchedPath(word.text, workspace)) or word.text == "/dev/null")
        for word in words
    )


def _is_ordinary(target: TouchedPath) -> bool:
    return target.inside and not is_guarded(target)


def _commands(access: Access) -> list[SimpleCommand]:
    return parse_shell(access.value).all_commands if access.kind == "command" else []


def _subject(access: Access, workspace: Path) -> str:
    match access.kind:
        case "command":
            line = " ".join(access.value.split())
            return f"`{line if len(line) <= MAX_COMMAND_CHARS else line[: MAX_COMMAND_CHARS - 1] + '…'}`"
        case "path":
            return TouchedPath(access.value, workspace).shown
        case _:
            return access.value or _tool_words(access.tool)


def _tool_words(name: str) -> str:
    """The name of a tool for people: mcp__shop__order is order of the MCP server shop."""
    server, _, tool = name.removeprefix(MCP_PREFIX).partition("__")
    return f"{tool} of the MCP server {server}" if name.startswith(MCP_PREFIX) and tool else name


def rule_words(rules: Sequence[str]) -> str:
    """What allow rules cover, for people: `pytest`, edits of src/**, the network: a.org, b.org."""
    patterns_by_words: dict[str, list[str]] = {}
    for rule in rules:
        tool, _, pattern = rule.removesuffix(")").partition("(")
        words = _RULE_WORDS.get(tool, f"{tool} of ") if pattern else _tool_words(tool)
        patterns_by_words.setdefault(words, []).append(
            f"`{pattern}`" if pattern and tool == "bash" else pattern
        )
    return " and ".join(words + ", ".join(patterns) for words, patterns in patterns_by_words.items())


_RULE_WORDS = {
    "bash": "",
    **dict.fromkeys(("write", "edit", "multiedit"), "edits of "),
    **dict.fromkeys(("read", "view", "ls", "glob", "grep"), "reading "),
    **dict.fromkeys(("network", "fetch"), "the network: "),
}


def _actions(access: Access, workspace: Path) -> Iterator[tuple[str, str]]:
    match access.kind:
        case "command":
            yield from _command_actions(access.value, workspace)
        case "path":
            yield ("writes" if access.writes else "reads"), TouchedPath(access.value, workspace).shown
        case "host":
            yield "fetches from", access.value
        case "none":
            yield "uses", _tool_words(access.tool)


def _command_actions(line: str, workspace: Path) -> Iterator[tuple[str, str]]:
    reading = parse_shell(line)
    for command in reading.all_commands:
        if command.program and not (command.inner and command.transparent):
            yield "runs", command.program
        for written in written_words(command):
            yield "writes", _displayed_name(written.word, workspace)
    for redirect in reading.redirects:
        if redirect.writes and not redirect.target.text.startswith(("/dev/", "&")):
            yield "writes", _displayed_name(redirect.target, workspace)


def _displayed_name(target: Word, workspace: Path) -> str:
    is_path = target.kind == "literal" and not target.text.startswith("~")
    return TouchedPath(target.text, workspace).shown if is_path else target.text


def _join_names(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    more = f" and {len(unique) - MAX_SHOWN_NAMES} more" if len(unique) > MAX_SHOWN_NAMES else ""
    return ", ".join(unique[:MAX_SHOWN_NAMES]) + more


PROGRAMS = {
    "apt-get": "installs or removes software of the system",
    "awk": "edits text",
    "bash": "runs a script",
    "cargo": "builds and tests Rust code; build scripts run",
    "cat": "prints files",
    "chmod": "changes who may use files",
    "chown": "changes the owner of files",
    "cp": "copies files",
    "curl": "talks to a web server",
    "dd": "copies data, also over whole disks",
    "docker": "starts or changes containers",
    "echo": "prints text",
    "find": "searches for files",
    "gh": "works with GitHub",
    "git": "works with the repository",
    "git add": "stages changes",
    "git checkout": "switches branches or restores files",
    "git clean": "deletes untracked files",
    "git clone": "copies a repository",
    "git commit": "records the staged changes",
    "git fetch": "downloads commits",
    "git merge": "joins branches",
    "git pull": "downloads commits and merges them",
    "git push": "sends commits to another repository",
    "git rebase": "rewrites commits on top of others",
    "git reset": "moves the branch",
    "git restore": "discards changes of files",
    "git stash": "sets changes aside",
    "go": "builds and tests Go code",
    "grep": "searches text",
    "kill": "ends processes",
    "ln": "makes links to files",
    "ls": "lists files",
    "make": "runs the steps of a Makefile",
    "mkdir": "makes folders",
    "mv": "moves or renames files",
    "node": "runs a JavaScript program",
    "npm": "manages JavaScript packages; their scripts run",
    "npx": "downloads and runs a JavaScript package",
    "perl": "runs a Perl program",
    "pip": "installs Python packages; their code runs",
    "pytest": "runs the Python tests",
    "python": "runs a Python program",
    "rm": "deletes files",
    "rsync": "copies files, also to other machines",
    "ruby": "runs a Ruby program",
    "scp": "copies files to or from another machine",
    "sed": "edits text",
    "sh": "runs a script",
    "ssh": "runs commands on another machine",
    "sudo": "runs a command as another user, usually root",
    "systemctl": "starts or stops services of the system",
    "tar": "packs or unpacks archives",
    "tee": "writes its input to files",
    "touch": "makes files or renews their date",
    "unzip": "unpacks an archive",
    "uv": "manages Python packages; their code runs",
    "wget": "downloads files",
    "xargs": "runs a command for what it reads",
    "yarn": "manages JavaScript packages; their scripts run",
    "zsh": "runs a script",
}
OPTIONS = {
    "curl": (r"-[XdFT].*|--(request|data|form|upload).*", "sends data"),
    "find": (
        r"-(delete|exec|ok|fprint|fls).*",
        "and may delete them, run commands or write files",
    ),
    "git push": (r"-f|--force.*|--delete|-d|\+.*", "replaces or deletes commits there"),
    "git reset": (r"--hard", "discards changes"),
    "rm": (r"-\w*[rR]\w*|--recursive", "folders with all they contain"),
    "sed": (r"-\w*i.*|--in-place.*", "changes the files"),
}
"""Words that make a program do more, and what that is."""
INTERPRETERS = frozenset(("bash", "node", "perl", "python", "ruby", "sh", "zsh"))
"""Run what they read, if they are given no file."""
_VERB = re.compile(r"(^|; )(needs|writes|changes) ")
"""Reasons that begin with what the call does."""


def explain_call(accesses: Sequence[Access], reason: str) -> str:
    """For example "`git push` sends commits to another repository. It asks because ..."."""
    parts = [sentence for access in accesses for sentence in _sentences(access)]
    why = "It asks because " + _VERB.sub(r"\1it \2 ", f"{reason[:1].lower()}{reason[1:]}.") if reason else ""
    return " ".join([*dict.fromkeys(parts), why, "Nothing happens before you answer."])


def _sentences(access: Access) -> list[str]:
    match access.kind:
        case "path":
            return [f"{'Changes' if access.writes else 'Reads'} {access.value}."]
        case "host":
            return [f"Sends a request to {access.value} and reads the answer."]
        case "none":
            return [f"Uses the tool {_tool_words(access.tool)}."]
        case "command":
            reading = parse_shell(access.value)
            found = [_explain(command) for command in reading.all_commands]
            found += [
                f"Output goes to {redirect.target.text}."
                for redirect in reading.redirects
                if redirect.writes and not redirect.target.text.startswith(("/dev/null", "&"))
            ]
            if reading.not_literal:
                found.append(f"Parts of it are only known when it runs ({reading.not_literal}).")
            return found


def _explain(command: SimpleCommand) -> str:
    words = [word.text for word in command.words[1:]]
    plain = [text for text in words if not text.startswith("-")]
    name, kind = command.program, command.program.rstrip("3")
    subcommand = " ".join((name, *plain[:1]))
    if plain and subcommand in PROGRAMS:
        name = kind = subcommand
        plain = plain[1:]
    unknown = "only reads and prints" if is_plain_reader(command) else "is a program crushpy does not know"
    what = PROGRAMS.get(kind, unknown)
    if kind in INTERPRETERS and command.stdin and not plain:
        source = "the command before it prints" if command.stdin == "pipe" else "it reads"
        return f"`{name}` runs whatever {source}."
    pattern, more = OPTIONS.get(kind, ("", ""))
    if pattern and any(re.fullmatch(pattern, text) for text in words):
        what += f", {more}"
    about = f" ({', '.join(plain[:3])}{', …' if len(plain) > 3 else ''})" if plain else ""
    return f"`{name}` {what}{about}."
