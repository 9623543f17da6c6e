"""Summaries and titles without a language model: what was asked, touched and left open.

The output is deterministic. The lines of a summary are found again when it is itself summarized, so what
one summary carries the next one carries too.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from crushpy.core.messages import Message, Text, ToolCall, shortened
from crushpy.llm.protocol import Request

OPEN_TODO = re.compile(r"^[ \t]*[-*] \[(?: |pending|in_progress)\] (.+)$", re.MULTILINE)
_CARRIED = re.compile(r"<(\w*(?:summary|evidence)\w*)\b[^>]*>.*</\1>", re.DOTALL)
_KIND = re.compile(r"\b(?:(summar|notes\b|transcript\b)|title\b)", re.IGNORECASE)
_USER = re.compile(
    r"^(?:[^\w\n]*(?:user|human)(?: [\w-]+)?[^\w\n]*?[:>\])*]+|<request\b[^>\n]*>)\s*(?!<)(\S.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_COMMAND = re.compile(r'"command":\s*"((?:[^"\\]|\\.)*)"|^- ran: (.+)$', re.MULTILINE)
_TODO = re.compile(r'"text":\s*"((?:[^"\\]|\\.)*)",\s*"status":\s*"(\w+)"')
_INSTRUCTIONS = re.compile(r"<instructions>[^<]*+</instructions>")
_PREVIOUS = re.compile(r"<(previous_\w+)>(.*?)</\1>", re.DOTALL)
_PATH = re.compile(r"(?<![\w/:.@+-])(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.[A-Za-z][A-Za-z0-9]{0,5}\b(?!/)")

_HEADING = re.compile(r"^#{1,6} +(\S.*?) *$", re.MULTILINE)
_TITLES = ("Goal, in the user's words", "Remaining", "Key tool calls", "Files and paths", "Next step")
_UNTOLD = ("Done", "In progress", "Decisions and why")
"""Headings of the shipped template that need a real model: left out, as it asks for empty sections."""

MAX_REQUESTS, MAX_FILES, MAX_COMMANDS = 8, 20, 8
MAX_LINE_CHARS, MAX_TITLE_CHARS = 160, 50


def is_carried(text: str) -> bool:
    """Whether this was carried over a boundary, and is not the user's words."""
    return _CARRIED.search(text) is not None


def write_summary(request: Request) -> str:
    """The summary or the title that is asked for; empty if neither is: there are tools, or the instructions
    (the system prompt and the beginning of the first message) do not say so."""
    instructions = request.system + "\n" + "".join(message.text for message in request.messages[:1])[:2_000]
    kind = None if request.tools else _KIND.search(instructions)
    if kind is None:
        return ""
    previous = "\n".join(text for _, text in _PREVIOUS.findall(request.system))
    transcript = "\n".join(message.text for message in request.messages)
    source = _INSTRUCTIONS.sub("", f"{previous}\n{transcript}")
    if not kind[1]:
        first = next(iter(_USER.findall(source) or source.strip().splitlines()), "")
        return shortened(" ".join(first.strip(" \"'`.#*").split()), MAX_TITLE_CHARS)
    titles = _HEADING.findall(_PREVIOUS.sub("", request.system))
    return _summarize(source, titles or _TITLES, max_chars=len(transcript) * 2 // 5)


def summarize_messages(messages: Sequence[Message], unfinished: str = "") -> str:
    """A summary of a session; `unfinished` is a request to carry out again."""
    lines = [f"- [ ] {unfinished}"] if unfinished else []
    for message in messages:
        for part in message.parts:
            if isinstance(part, Text) and message.role == "user":
                lines.append(part.text if is_carried(part.text) else f"User: {part.text}")
            elif isinstance(part, ToolCall):
                lines.append(f"[calls {part.name}] {msgspec.json.encode(part.args).decode()}")
    return _summarize("\n".join(lines))


def _summarize(text: str, titles: Sequence[str] = _TITLES, max_chars: int | None = None) -> str:
    """The sections that a template asks for; the last ones are left out above `max_chars`."""
    todos = dict.fromkeys(OPEN_TODO.findall(text), "pending") | dict(_TODO.findall(text))
    still_open = [item for item, status in todos.items() if status != "completed"]
    commands = [quoted or two for quoted, two in _last(_COMMAND.findall(text), MAX_COMMANDS)]
    known = {
        "goal|request|want|user": [f"User: {words}" for words in _last(_USER.findall(text), MAX_REQUESTS)],
        "remain|to.?do|open|left": [f"[ ] {item}" for item in still_open],
        "tool|command|call": [f"ran: {command}" for command in commands],
        "file|path": _last(_PATH.findall(text), MAX_FILES),
        "next": [f"do this: {still_open[0]}" if still_open else "wait for the next request"],
    }
    blocks: list[str] = []
    for title in dict.fromkeys(titles):
        topic = next((words for words in known if re.search(words, title, re.IGNORECASE)), "")
        lines = known.pop(topic, [] if title in _UNTOLD else ["(the demo model has nothing to say here)"])
        if lines:
            shown = (shortened(" ".join(line.split()), MAX_LINE_CHARS) for line in lines)
            blocks.append("\n".join([f"## {title}", *(f"- {line}" for line in shown)]))
    while len(blocks) > 2 and max_chars is not None and sum(map(len, blocks)) > max_chars:
        blocks.pop()
    return "\n\n".join(blocks) or "- nothing was asked yet"


def _last(found: Iterable[Any], count: int) -> list[Any]:
    """The last `count` distinct items, in the order they first came."""
    return list(dict.fromkeys(found))[-count:]
