"""Summaries and titles without a language model: what was asked, done and touched, put in order.

The same words in, the same words out. A summary's own lines are read back when it is summarised again, so
what one carries the next one carries too.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from crushpy.core.messages import Data, Message, Seed, Text, ToolCall
from crushpy.llm.demo.situation import OPEN_TODO, is_carried
from crushpy.llm.protocol import Request

_SUMMARY = re.compile(r"\bsummar|\bnotes\b|\btranscript\b", re.IGNORECASE)
_TITLE = re.compile(r"\btitle\b", re.IGNORECASE)
_SHORT = re.compile(r"\bsentences?\b", re.IGNORECASE)

_USER = re.compile(
    r"^(?:[^\w\n]*(?:user|human)(?: [\w-]+)?[^\w\n]*?[:>\])*]+|<request\b[^>\n]*>)[ \t]*(?P<same>.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_COMMAND = re.compile(r'"command":\s*"((?:[^"\\]|\\.)*)"|^- ran: (.+)$', re.MULTILINE)
_TODO = re.compile(r'"text":\s*"((?:[^"\\]|\\.)*)",\s*"status":\s*"(\w+)"')
_INSTRUCTIONS = ("<instructions>", "</instructions>")
_PREVIOUS = re.compile(r"<(previous_\w+)>(.*?)</\1>", re.DOTALL)
_PATH = re.compile(r"(?<![\w/:.@+-])(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.[A-Za-z][A-Za-z0-9]{0,5}\b(?!/)")

_REQUESTS, _FILES, _COMMANDS, _WIDTH, _TITLE_WIDTH = 8, 20, 8, 160, 50


class Facts(Data, frozen=True):
    """What a summary is made of."""

    requests: tuple[str, ...]
    files: tuple[str, ...]
    commands: tuple[str, ...]
    open_todos: tuple[str, ...]


def is_summary_request(request: Request) -> bool:
    """Whether this asks for a summary or a title: no tools, and instructions that say so."""
    return not request.tools and bool(_what(request))


def written_for(request: Request) -> str:
    """The summary or the title that is asked for."""
    notes = "\n".join(previous for _, previous in _PREVIOUS.findall(request.system))
    source = _without_instructions("\n".join((notes, *(message.text for message in request.messages))))
    facts = of_text(source)
    if _what(request) == "title":
        return _title(facts, source)
    if _SHORT.search(_instructions(request)):
        return _sentences(facts)
    transcript = sum(len(message.text) for message in request.messages)
    return render(facts, room=transcript * 2 // 5)


def of_messages(messages: Sequence[Message], unfinished: str = "") -> str:
    """A summary of the session that `messages` are; `unfinished` is what is to be done again."""
    again = [f"- [ ] {unfinished}"] if unfinished else []
    return render(of_text("\n".join((*_lines(messages), *again))))


def of_text(text: str) -> Facts:
    """The facts in a transcript."""
    todos: dict[str, str] = dict.fromkeys(OPEN_TODO.findall(text), "pending")
    for item, status in _TODO.findall(text):
        todos[item] = status
    return Facts(
        requests=_last(_said_by_user(text), _REQUESTS),
        files=_last(_PATH.findall(text), _FILES),
        commands=_last((one or two for one, two in _COMMAND.findall(text)), _COMMANDS),
        open_todos=tuple(item for item, status in todos.items() if status != "completed"),
    )


def render(facts: Facts, room: int | None = None) -> str:
    """The summary; within `room` characters as far as leaving out the lesser sections can bring it there."""
    last = facts.requests[-1] if facts.requests else "nothing yet"
    going_on = facts.open_todos[0] if facts.open_todos else "nothing"
    next_step = f"do this: {facts.open_todos[0]}" if facts.open_todos else "wait for the next request"
    sections = {
        "Goal, in the user's words": [f"User: {request}" for request in facts.requests],
        "Done": [f"worked on the requests above, the last of them: {last}"],
        "In progress": [going_on],
        "Remaining": [f"[ ] {item}" for item in facts.open_todos],
        "Key tool calls": [f"ran: {command}" for command in facts.commands],
        "Files and paths": list(facts.files),
        "Next step": [next_step],
    }
    text = _joined(sections)
    for lesser in ("Done", "In progress", "Next step", "Key tool calls", "Files and paths"):
        if room is None or len(text) <= room:
            break
        del sections[lesser]
        text = _joined(sections)
    return text or f"- {last}"


def _joined(sections: dict[str, list[str]]) -> str:
    return "\n\n".join(
        f"## {title}\n" + "\n".join(f"- {_short(line)}" for line in lines)
        for title, lines in sections.items()
        if lines
    )


def _what(request: Request) -> str:
    """summary, title or nothing: whichever word comes first."""
    text = _instructions(request)
    found = [
        (match.start(), kind)
        for kind, word in (("summary", _SUMMARY), ("title", _TITLE))
        if (match := word.search(text))
    ]
    return min(found)[1] if found else ""


def _instructions(request: Request) -> str:
    """Where a summariser is told what to do: the system prompt, and the beginning of what it gets."""
    return request.system + "\n" + "".join(message.text for message in request.messages[:1])[:2_000]


def _lines(messages: Sequence[Message]) -> Iterable[str]:
    """A session as text in the form this module reads."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, Seed):
                yield f"{part.summary}\n{part.evidence}"
            elif isinstance(part, Text) and message.role == "user":
                yield part.text if is_carried(part.text) else f"User: {part.text}"
            elif isinstance(part, ToolCall):
                yield f"[calls {part.name}] {msgspec.json.encode(part.args).decode()}"


def _said_by_user(text: str) -> Iterable[str]:
    """The first line of everything the user said: beside the mark, or below it."""
    for match in _USER.finditer(text):
        said = match["same"].strip() or text[match.end() :].lstrip().partition("\n")[0].strip()
        if said and not said.startswith("<"):
            yield said


def _without_instructions(text: str) -> str:
    begin, end = _INSTRUCTIONS
    kept: list[str] = []
    while True:
        before, _, after = text.partition(begin)
        _, closed, rest = after.partition(end)
        if not closed:
            return "".join((*kept, text))
        kept.append(before)
        text = rest


def _last(found: Iterable[str], count: int) -> tuple[str, ...]:
    """The last `count` different ones, in the order they first came."""
    return tuple(dict.fromkeys(_short(item) for item in found if item.strip()))[-count:]


def _title(facts: Facts, source: str) -> str:
    first = facts.requests[0] if facts.requests else next(iter(source.strip().splitlines()), "")
    words = first.strip(" \"'`.#*").replace("\n", " ")
    return words if len(words) <= _TITLE_WIDTH else words[: _TITLE_WIDTH - 1].rstrip() + "…"


def _sentences(facts: Facts) -> str:
    asked = f"The request was: {facts.requests[-1]}." if facts.requests else "There was no request in it."
    files = f" It touched {', '.join(facts.files[:5])}." if facts.files else ""
    commands = f" It ran {', '.join(facts.commands[:3])}." if facts.commands else ""
    return asked + files + commands


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"
