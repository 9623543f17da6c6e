"""Permission rules as people write them: `tool` or `tool(pattern)`, in three lists. Knows no file."""

import re
from collections.abc import Collection, Iterable
from functools import lru_cache

from crushpy.core.access import ToolAccess, ToolTable, declared_tools
from crushpy.core.errors import SettingsError
from crushpy.core.messages import Data
from crushpy.permissions.patterns import compiled
from crushpy.permissions.shell.ast import word_set

READ, WRITE, RUN, TALK = "view", "write", "bash", "fetch"
"""Their rules are rights: to read any file, to change any, to run commands, to talk to hosts, by any tool."""

NETWORK = "network"
RIGHTS: ToolTable = {NETWORK: ToolAccess("host", writes=True)}
"""What rules speak of beside tools: what commands get beyond the sandbox."""

RUNS_ANYTHING = word_set(
    "sh bash dash zsh ksh fish eval exec source . sudo doas su xargs nohup parallel busybox"
)
"""A rule that names only one of these would allow any shell command."""

_SHAPE = re.compile(r"([A-Za-z_][\w.-]*)\s*(?:\((.*)\))?", re.DOTALL)
_HOST = re.compile(r"(\*|(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?|\[?[0-9a-f:]+\]?)")


class Rule(Data, frozen=True):
    """One rule. Without a pattern it speaks of every call of its tool."""

    tool: str
    pattern: str = ""
    origin: str = ""
    """Who brought it, where nobody wrote it into the settings: a mode."""

    def __str__(self) -> str:
        return f"{self.tool}({self.pattern})" if self.pattern else self.tool

    @property
    def words(self) -> tuple[str, ...]:
        """A bash rule's pattern as words, quotes removed."""
        return split_words(self.pattern)

    @staticmethod
    def parse(text: str, tools: ToolTable) -> "Rule":
        """The rule that `text` spells. `tools`: those there are, which say what pattern each takes."""
        match = _SHAPE.fullmatch(text.strip())
        if match is None:
            raise _bad(text, "it is neither `tool` nor `tool(pattern)`")
        tool, pattern = match[1], match[2]
        access = tools.get(tool) or RIGHTS.get(tool)
        if access is None:
            raise _bad(text, f"there is no tool {tool!r}", _nearest(tool, (*tools, *RIGHTS)))
        if pattern is None:
            return Rule(tool)
        pattern = pattern.strip()
        if not pattern:
            raise _bad(text, "the pattern is empty", f"For every call of the tool write {tool}.")
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in pattern):
            raise _bad(text, "the pattern holds a control character")
        match access.kind:
            case "command":
                _check_command(text, pattern)
            case "path":
                _check_path(text, pattern)
            case "host":
                pattern = _host_pattern(text, tool, pattern)
            case "none":
                raise _bad(text, f"{tool} takes no pattern", f"Write {tool}.")
        return Rule(tool, pattern)


class RuleSet(Data, frozen=True):
    """All rules in force. Deny beats ask beats allow; the order in a list means nothing."""

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    closed: str = ""
    """Why what could change something is denied where it would ask; empty where it asks."""

    @staticmethod
    def from_strings(
        allow: Iterable[str] = (),
        ask: Iterable[str] = (),
        deny: Iterable[str] = (),
        tools: ToolTable | None = None,
    ) -> "RuleSet":
        """`tools`: those there are; None: those that the registry declared."""
        known = declared_tools() if tools is None else tools
        return RuleSet(
            tuple(parse_allow(text, known) for text in allow),
            tuple(Rule.parse(text, known) for text in ask),
            tuple(Rule.parse(text, known) for text in deny),
        )

    def __add__(self, other: "RuleSet") -> "RuleSet":
        return RuleSet(
            self.allow + other.allow,
            self.ask + other.ask,
            self.deny + other.deny,
            self.closed or other.closed,
        )


def parse_allow(text: str, tools: ToolTable) -> Rule:
    """A rule that is meant to allow: it never means any shell command."""
    rule = Rule.parse(text, tools)
    if rule.tool in RIGHTS or tools[rule.tool].kind != "command":
        return rule
    words = rule.words
    options_only = all(word.startswith("-") for word in words[1:])
    if not words or words == ("*",) or (words[0] in RUNS_ANYTHING and options_only):
        raise _bad(
            text,
            "it would allow any shell command",
            "Name the commands, as in bash(git log) or bash(npm run test); to be asked nothing, use --yolo.",
        )
    return rule


@lru_cache(maxsize=1024)
def split_words(pattern: str) -> tuple[str, ...]:
    """A bash pattern as words, quotes removed. Raises ValueError with what is wrong."""
    words: list[str] = []
    word: list[str] | None = None
    quote = ""
    letters = iter(pattern)
    for letter in letters:
        if quote == "'":
            quote, piece = ("", "") if letter == "'" else (quote, letter)
        elif letter == "\\":
            following = next(letters, "")
            piece = following if not quote or following in '"\\$`' else letter + following
        elif letter in "$`":
            raise ValueError("a rule spells words, it cannot hold $ or ` (put them in single quotes)")
        elif quote:
            quote, piece = ("", "") if letter == '"' else (quote, letter)
        elif letter in "'\"":
            quote, piece = letter, ""
        elif letter.isspace():
            if word is not None:
                words.append("".join(word))
            word = None
            continue
        elif letter in "|&;<>()":
            raise ValueError(f"a rule names one simple command, it cannot hold {letter}")
        else:
            piece = letter
        word = [*(word or ()), piece]
    if quote:
        raise ValueError("a quote is not closed")
    if word is not None:
        words.append("".join(word))
    return tuple(words)


def _check_command(text: str, pattern: str) -> None:
    if pattern == "*":
        return
    if pattern.endswith((" *", ":*")):
        shorter = pattern[:-2].strip()
        tool = text.partition("(")[0].strip()
        raise _bad(text, f"a {tool} pattern already covers the words after it", f"Write {tool}({shorter}).")
    try:
        words = split_words(pattern)
    except ValueError as error:
        raise _bad(text, str(error)) from None
    if not words or not words[0]:
        raise _bad(text, "it names no program")
    if re.fullmatch(r"[A-Za-z_]\w*\+?=.*", words[0], re.DOTALL):
        raise _bad(text, f"it begins with the variable {words[0]!r}, not with a program")


def _check_path(text: str, pattern: str) -> None:
    if pattern.startswith("!"):
        raise _bad(text, "a path pattern cannot be negated", "Use an allow rule and a deny rule.")
    # Compiling is costly the first time: only what could be invalid is tried here.
    if ("[" in pattern or "\\" in pattern) and compiled(pattern) is None:
        raise _bad(
            text, "it is not a valid path pattern", "Put a backslash before a literal [, ] or backslash."
        )


def _host_pattern(text: str, tool: str, pattern: str) -> str:
    host = pattern.lower().rstrip(".")
    if not _HOST.fullmatch(host):
        raise _bad(text, f"the pattern of {tool} is a host", f"Example: {tool}(docs.python.org)")
    return host


def _nearest(tool: str, known: Collection[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(tool.lower(), list(known), n=1)
    return f"Did you mean {close[0]}?" if close else f"Tools: {', '.join(sorted(known))}."


def _bad(text: str, wrong: str, hint: str = "") -> SettingsError:
    example = "Examples: bash(git log), write(src/**), fetch(docs.python.org)."
    return SettingsError(f"The permission rule {text!r} cannot be used: {wrong}.", hint or example)
