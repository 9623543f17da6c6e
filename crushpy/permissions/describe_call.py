"""Describes what a call would do, for a user who is asked about it: in a sentence, and in a paragraph."""

import re
from collections.abc import Sequence
from pathlib import Path

from crushpy.core.access import Access, Privileges
from crushpy.core.mcp_names import MCP_PREFIX
from crushpy.core.messages import shortened
from crushpy.permissions.decision import join_names
from crushpy.permissions.network_needs import network_needs
from crushpy.permissions.path_rules import TouchedPath, is_guarded
from crushpy.permissions.program_table import facts
from crushpy.permissions.read_only_commands import is_plain_reader
from crushpy.permissions.shell.ast import SimpleCommand
from crushpy.permissions.shell.line_reader import parse_shell

MAX_COMMAND_CHARS = 60
"""Of a command in a title; the question shows all of it below."""


def question_title(tool: str, accesses: Sequence[Access], workspace: Path, missing: Privileges) -> str:
    """The question about a call in a sentence: "Run `git push` with the network: github.com?"."""
    for access in accesses:
        if access.reason:
            return _consent_title(access, [other for other in accesses if not other.reason])
    needs = missing | expected_needs(accesses, workspace)
    kinds = {(access.kind, access.writes) for access in accesses}
    verb, names = "Use", [_subject(access, workspace) for access in accesses]
    if len(kinds) == 1:
        kind, writes = kinds.pop()
        edits = "Write" if tool == "write" else "Edit"
        verb = {"command": "Run", "host": "Fetch from", "none": "Use"}.get(kind, edits if writes else "Read")
        names = [f"{len(names)} files"] if kind == "path" and len(names) > 1 else names
    hosts = f": {join_names(needs.hosts)}" if needs.hosts and not needs.network else ""
    wanted = [f"the network{hosts}"] if needs.network or needs.hosts else []
    wanted += [f"write access to {join_names(needs.write)}"] if needs.write else []
    return f"{verb} {join_names(names) or tool}{' with ' if wanted else ''}{' and '.join(wanted)}?"


def _consent_title(asked: Access, calls: Sequence[Access]) -> str:
    """For example "Start ev (`python3 server.py`) and call echo?"."""
    server = asked.tool.removeprefix(MCP_PREFIX)
    does = f"Start {server} (`{_in_title(asked.value)}`)" if asked.value else f"Use {server} as it is now"
    tools = [call.tool.removeprefix(f"{MCP_PREFIX}{server}__") for call in calls]
    return f"{does}{' and call ' if tools else ''}{join_names(tools)}?"


def expected_needs(accesses: Sequence[Access], workspace: Path) -> Privileges:
    """What the agent asked for, and what commands show that they need of the network."""
    guessed = (network_needs(command, workspace) for access in accesses for command in commands_of(access))
    return Privileges.union((*(access.needs for access in accesses), *guessed))


def stays_inside(access: Access, workspace: Path) -> bool:
    """Whether it is certain that a path or command needs no network and nothing outside the workspace."""
    if access.kind == "path":
        return _is_ordinary(TouchedPath(access.value, workspace))
    if access.kind != "command" or access.needs != Privileges():
        return False
    words = [redirect.target for redirect in parse_shell(access.value).redirects if redirect.writes]
    for command in commands_of(access):
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


def commands_of(access: Access) -> list[SimpleCommand]:
    return parse_shell(access.value).all_commands if access.kind == "command" else []


def _subject(access: Access, workspace: Path) -> str:
    match access.kind:
        case "command":
            return f"`{_in_title(access.value)}`"
        case "path":
            return TouchedPath(access.value, workspace).shown
        case _:
            return access.value or _tool_words(access.tool)


def _in_title(command: str) -> str:
    return shortened(" ".join(command.split()), MAX_COMMAND_CHARS)


def _tool_words(name: str) -> str:
    """The name of a tool for people: mcp__shop__order is order of the MCP server shop."""
    server, _, tool = name.removeprefix(MCP_PREFIX).partition("__")
    if not name.startswith(MCP_PREFIX):
        return name
    return f"{tool} of the MCP server {server}" if tool else f"the MCP server {server}"


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
            if access.value:
                return [f"Starts {_tool_words(access.tool)}: `{access.value}`."]
            return [f"Uses {'' if access.reason else 'the tool '}{_tool_words(access.tool)}."]
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
    name, row = command.program, facts(command.program)
    if plain and facts(name, plain[0]).says:
        name, row = f"{name} {plain[0]}", facts(name, plain[0])
        plain = plain[1:]
    if row.interpreter and command.stdin and not plain:
        source = "the command before it prints" if command.stdin == "pipe" else "it reads"
        return f"`{name}` runs whatever {source}."
    unknown = "only reads and prints" if is_plain_reader(command) else "is a program crushpy does not know"
    pattern, more = row.more
    does_more = pattern and any(re.fullmatch(pattern, text) for text in words)
    about = f" ({', '.join(plain[:3])}{', …' if len(plain) > 3 else ''})" if plain else ""
    return f"`{name}` {row.says or unknown}{f', {more}' if does_more else ''}{about}."
