"""Permission rules: `tool` or `tool(pattern)` in three lists, and the rules each mode adds."""

import os
import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from crushpy.core.access import Mode, Privileges, ToolAccess, ToolTable, declared_tools
from crushpy.core.errors import SettingsError
from crushpy.core.mcp_names import BRIDGE, MCP_PREFIX
from crushpy.core.messages import Data
from crushpy.permissions.shell.ast import word_set
from crushpy.util.lazy_pattern import lazy_pattern

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


@lru_cache(maxsize=512)
def compiled(pattern: str) -> "GitIgnoreSpec | None":
    """The compiled gitignore-style pattern; None if it is invalid."""
    import warnings

    from pathspec import GitIgnoreSpec

    line = f"\\{pattern}" if pattern.startswith("#") else pattern
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd brackets, of no use to the user
            return GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):
        return None


def escaped(path: str) -> str:
    """A pattern that matches this path literally."""
    return "".join(f"\\{letter}" if letter in "\\*?[]!#" else letter for letter in path)


READ, WRITE, RUN, TALK = "view", "write", "bash", "fetch"
"""Rules for these tools apply to every tool that reads files, writes files, runs commands or fetches."""

NETWORK, FOLDER = "network", "folder"
WEB_SEARCH_RULE = "web_search"
RIGHTS: ToolTable = {
    NETWORK: ToolAccess("host", writes=True),
    FOLDER: ToolAccess("path", writes=True),
    WEB_SEARCH_RULE: ToolAccess("none"),
}
"""What rules can name besides tools: what commands get beyond the sandbox, folders that count as the
workspace, and searches by the model's vendor."""

RUNS_ANYTHING = word_set(
    "sh bash dash zsh ksh fish eval exec source . sudo doas su xargs nohup parallel busybox"
)
"""A rule that names only one of these would allow any shell command."""

_RULE_SYNTAX = lazy_pattern(r"(mcp__[\w.*-]*|[A-Za-z_][\w.-]*)\s*(?:\((.*)\))?", re.DOTALL)
_MCP_TOOL = ToolAccess("none", writes=True)
_HOST = lazy_pattern(r"(\*|(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?|\[?[0-9a-f:]+\]?)")


Owner = Literal["user", "project", "submitter"]
"""The user: settings, flags, arguments of an SDK caller, answers. Foreign: a project's settings, and what the
submitter of a fleet's list sends and answers."""


class Rule(Data, frozen=True):
    """One rule. Without a pattern it applies to every call of its tool."""

    tool: str
    pattern: str = ""
    origin: str = ""
    """The mode that added the rule; empty if it comes from the settings."""
    owner: Owner = "user"
    """Whose it is. Those that are not the user's are foreign: they allow nothing outside the workspace."""

    def __str__(self) -> str:
        return f"{self.tool}({self.pattern})" if self.pattern else self.tool

    @property
    def foreign(self) -> bool:
        return self.owner != "user"

    @property
    def words(self) -> tuple[str, ...]:
        """A bash rule's pattern as words, quotes removed."""
        return split_words(self.pattern)

    @staticmethod
    def parse(text: str, tools: ToolTable) -> "Rule":
        """Parses `text`. `tools`: the known tools, which say what kind of pattern each takes."""
        match = _RULE_SYNTAX.fullmatch(text.strip())
        if match is None:
            raise _invalid(text, "write `tool` or `tool(pattern)`")
        tool, pattern = match[1], match[2]
        access = tools.get(tool) or RIGHTS.get(tool) or (_MCP_TOOL if tool.startswith(MCP_PREFIX) else None)
        if access is None:
            from difflib import get_close_matches

            known = [*tools, *RIGHTS]
            close = get_close_matches(tool.lower(), known, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"Tools: {', '.join(sorted(known))}."
            raise _invalid(text, f"there is no tool {tool!r}", hint)
        if pattern is None:
            return Rule(tool)
        pattern = pattern.strip()
        if not pattern:
            raise _invalid(text, "the pattern is empty", f"To match every call of the tool, write {tool}.")
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in pattern):
            raise _invalid(text, "the pattern contains a control character")
        match access.kind:
            case "command":
                _check_command(text, pattern)
            case "path":
                _check_path(text, pattern)
            case "host":
                pattern = pattern.lower().rstrip(".")
                if not _HOST.fullmatch(pattern):
                    example = f"Example: {tool}(docs.python.org)"
                    raise _invalid(text, f"the pattern of {tool} is a host", example)
            case "none":
                raise _invalid(text, f"{tool} takes no pattern", f"Write {tool}.")
        return Rule(tool, pattern)


def covers_mcp_tool(rule: str, tool: str) -> bool:
    """Whether a rule's name covers a tool of an MCP server: `mcp`, `mcp__server`, or a name with `*`."""
    if not (rule.startswith((BRIDGE, MCP_PREFIX)) and tool.startswith(MCP_PREFIX)):
        return False
    return rule == BRIDGE or fnmatchcase(tool, rule) or tool.startswith(f"{rule}__")


class RuleSet(Data, frozen=True):
    """All rules in force. Deny beats ask beats allow; the order within a list has no meaning."""

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    closed: str = ""
    """Why anything that could change something is denied instead of asked about; empty if it asks."""
    confined: str = ""
    """Why anything outside the workspace is denied instead of asked about: whoever starts and answers the
    conversation is not this machine's user. Empty if it asks."""

    @property
    def own(self) -> tuple[Rule, ...]:
        """The allow rules that count outside the workspace as well."""
        return tuple(rule for rule in self.allow if not rule.foreign)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders that count as the workspace, beside it."""
        named = [re.sub(r"\\(.)", r"\1", rule.pattern) for rule in self.own if rule.tool == FOLDER]
        return tuple(Path(os.path.realpath(Path(name).expanduser())) for name in named if name)

    @staticmethod
    def from_strings(
        allow: Iterable[str] = (),
        ask: Iterable[str] = (),
        deny: Iterable[str] = (),
        tools: ToolTable | None = None,
    ) -> "RuleSet":
        """`tools`: the known tools; None for those the registry declared."""
        known = declared_tools() if tools is None else tools
        return RuleSet(
            tuple(parse_allow(text, known) for text in allow),
            tuple(Rule.parse(text, known) for text in ask),
            tuple(Rule.parse(text, known) for text in deny),
        )

    def grant(self, *rules: Rule) -> "RuleSet":
        """Adds allow rules of whoever starts the conversation and answers its questions."""
        owner: Owner = "submitter" if self.confined else "user"
        granted = (msgspec.structs.replace(rule, owner=owner) for rule in rules)
        return msgspec.structs.replace(self, allow=(*self.allow, *granted))

    def owned_by_project(self, rules: Collection[str]) -> "RuleSet":
        """With a project's settings as the owner of its `rules`, which can only tighten."""
        ask, deny = (
            tuple(
                msgspec.structs.replace(rule, owner="project") if str(rule) in rules else rule
                for rule in group
            )
            for group in (self.ask, self.deny)
        )
        return msgspec.structs.replace(self, ask=ask, deny=deny)


def parse_allow(text: str, tools: ToolTable) -> Rule:
    """Parses an allow rule. A rule that would allow any shell command is rejected."""
    rule = Rule.parse(text, tools)
    if rule.tool in RIGHTS or rule.tool not in tools or tools[rule.tool].kind != "command":
        return rule
    words = rule.words
    options_only = all(word.startswith("-") for word in words[1:])
    if not words or words == ("*",) or (words[0] in RUNS_ANYTHING and options_only):
        raise _invalid(
            text,
            "it would allow any shell command",
            "Name the commands, as in bash(git log) or bash(npm run test); to be asked nothing, use --yolo.",
        )
    return rule


_QUOTED = lazy_pattern(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.", re.DOTALL)


@lru_cache(maxsize=1024)
def split_words(pattern: str) -> tuple[str, ...]:
    """A bash pattern as words, quotes removed. Raises ValueError with what is wrong."""
    import shlex

    unquoted = _QUOTED.sub(lambda part: part[0] if part[0].startswith('"') else "", pattern)
    if re.search(r"[$`]", unquoted):
        raise ValueError("a rule cannot contain $ or ` outside single quotes")
    bare = _QUOTED.sub("", pattern)
    if operator := re.search(r"[|&;<>()]", bare):
        raise ValueError(f"a rule names one simple command and cannot contain {operator[0]}")
    if re.search(r"['\"\\]", bare):
        raise ValueError("a quote is not closed")
    return tuple(shlex.split(pattern))


def _check_command(text: str, pattern: str) -> None:
    if pattern == "*":
        return
    if pattern.endswith((" *", ":*")):
        shorter = pattern[:-2].strip()
        tool = text.partition("(")[0].strip()
        raise _invalid(
            text, f"a {tool} pattern already covers the words after it", f"Write {tool}({shorter})."
        )
    try:
        words = split_words(pattern)
    except ValueError as error:
        raise _invalid(text, str(error)) from None
    if not words or not words[0]:
        raise _invalid(text, "it does not name a program")
    if re.fullmatch(r"[A-Za-z_]\w*\+?=.*", words[0], re.DOTALL):
        raise _invalid(text, f"it begins with the variable {words[0]!r}, not with a program")


def _check_path(text: str, pattern: str) -> None:
    if pattern.startswith("!"):
        raise _invalid(text, "a path pattern cannot be negated", "Use an allow rule and a deny rule.")
    # Compiling is expensive the first time, so only patterns that could be invalid are tried here.
    if ("[" in pattern or "\\" in pattern) and compiled(pattern) is None:
        raise _invalid(
            text, "it is not a valid path pattern", "Put a backslash before a literal [, ] or backslash."
        )


def _invalid(text: str, reason: str, hint: str = "") -> SettingsError:
    example = "Examples: bash(git log), write(src/**), fetch(docs.python.org)."
    return SettingsError(f"The permission rule {text!r} cannot be used: {reason}.", hint or example)


def rules_for(needs: Privileges) -> tuple[str, ...]:
    """The allow rules that grant these privileges."""
    hosts = tuple(f"{NETWORK}({host})" for host in needs.hosts)
    return (*hosts, *(f"{WRITE}({escaped(folder)}/**)" for folder in needs.write))


PLAN_CLOSED = "plan mode only reads"


def in_mode(mode: Mode, rules: RuleSet) -> RuleSet:
    """`rules` as they apply in a mode. Deny and ask rules apply in every mode."""
    match mode:
        case "edits":
            return rules.grant(*_EDITS_ALLOW)
        case "plan":
            # Commands count: a rule that lets tests run lets them write. What only reads needs no rule.
            writing = {name for name, each in declared_tools().items() if each.writes and each.kind != "host"}
            allow = tuple(rule for rule in rules.allow if rule.tool not in writing | {RUN})
            deny = (*rules.deny, *_PLAN_DENY)
            return msgspec.structs.replace(rules, allow=allow, deny=deny, closed=PLAN_CLOSED)
        case "ask":
            return rules


_EDITS_ALLOW = (Rule(WRITE, "./**", "the mode that allows edits"),)
_PLAN_DENY = (Rule(WRITE, origin="plan mode"), Rule("job_kill", origin="plan mode"))
