"""A conversation as one HTML file: no requests, no scripts but its own, and every text of others is inert.

The file holds the conversation as JSON; `page/page.js` shows it, and renders a folded part when it is opened.
"""

import base64
import hashlib
import html
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from importlib.resources import files
from pathlib import PurePath
from typing import Any

import msgspec

from crushpy.context.overrides import SentState
from crushpy.core import messages
from crushpy.core.call_words import call_words
from crushpy.engine.compaction.judged_boundaries import judge_stored
from crushpy.engine.session.export import ExportedText, load_sent_states, plain_images, without_bytes
from crushpy.engine.session.page_markup import as_nodes
from crushpy.engine.session.tree import TreeRow
from crushpy.security.redact import Redactor
from crushpy.security.sanitize import clean, map_texts, one_line
from crushpy.storage.store import Store
from crushpy.util.shown_paths import path_shortener

FILES = {
    "html": ("page.html",),
    "css": ("page.css", "print.css"),
    "js": ("search.js", "chart.js", "page.js"),
}
"""In the folder `page`: what is put together to one style and one script."""
POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'"
ALWAYS_LEFT_OUT = (
    "system prompts and tool definitions",
    "signed and encrypted reasoning",
    "approvals, and the full output of commands whose result was shortened",
    "the project's and the home folder: paths are relative",
)
FOLDED_LINES = 10
"""A pasted text of so many lines is folded."""


class Redaction(messages.Data, frozen=True, omit_defaults=False):
    """How often one kind of secret was replaced at one place."""

    kind: str
    place: str
    """In words: the session, the message, and the tool."""
    count: int
    session: str = ""
    message: str = ""


class PageReport:
    """What a page contains on request, and what it does not show: complete once it is written."""

    def __init__(self, *, thinking: bool = False, images: bool = False, keep_secrets: bool = False) -> None:
        self.thinking = thinking
        self.images = images
        self.keep_secrets = keep_secrets
        self.redactions: list[Redaction] = []
        self._left_out: Counter[str] = Counter()
        self._found: Counter[str] = Counter()
        self._redactor = Redactor(self._found)
        self._shorten: Callable[[str], str] = clean

    def shorten_paths(self, folders: Iterable[str]) -> None:
        """Paths are shown relative to these folders from now on."""
        shorten = path_shortener(folders)
        self._shorten = lambda text: shorten(clean(text))

    def leave_out(self, what: str) -> None:
        self._left_out[what] += 1

    @property
    def left_out(self) -> list[str]:
        flags = {"thinking block": "--thinking", "image": "--images"}
        found = [
            f"{messages.counted(many, what)} ({flags[what]} adds them)"
            for what, many in self._left_out.items()
        ]
        return [*sorted(found), *ALWAYS_LEFT_OUT]

    @property
    def lines(self) -> list[str]:
        """For a person who decides whether to share the page."""
        many = sum(redaction.count for redaction in self.redactions)
        total = (
            "Secrets are not redacted." if self.keep_secrets else f"{messages.counted(many, 'redaction')}."
        )
        redacted = [
            f"redacted: {redaction.kind}, {redaction.count} in {redaction.place}"
            for redaction in self.redactions
        ]
        return [*redacted, *(f"left out: {what}" for what in self.left_out), total]

    def safe(self, value: Any, place: str, session: str = "", message: str = "") -> Any:
        """Plain data without control characters and secrets; what was redacted is recorded."""
        value = map_texts(
            value, self._shorten
        )  # first: removing a control character may join the halves of a key
        if self.keep_secrets:
            return value
        value = self._redactor.data(value)
        for kind, many in sorted(self._found.items()):
            self.redactions.append(Redaction(kind, place, many, session, message))
        self._found.clear()
        return value


async def export_page(
    store: Store, load_tree: Callable[[str], Awaitable[list[TreeRow]]], exported: str, report: PageReport
) -> ExportedText:
    """The file. The same input gives the same bytes."""
    states = await load_sent_states(store, exported)
    lineage = {session.id for session in await store.sessions.load_lineage(exported)}
    tree = await load_tree(exported)
    root = tree[0].session
    report.shorten_paths(row.session.cwd for row in tree)
    head: dict[str, Any] = {
        "conversation": root.root_id,
        "exported": exported,
        "title": root.title,
        "folder": PurePath(root.cwd).name,
        "imported": root.imported,
        "redacted": not report.keep_secrets,
        "usage": msgspec.to_builtins(sum((row.session.usage for row in tree), messages.Usage())),
        "lineage": [number for number, row in enumerate(tree) if row.session.id in lineage],
    }
    value = report.safe(head, "the head of the page") | {"sessions": []}
    count = 0
    hindsight = await judge_stored(store, exported)
    for row in tree:
        session, stored = _session(row, report), await store.messages.load_readable(row.session.id)
        session["messages"] = [_message(message, row.session.id, states, report) for message in stored]
        if known := hindsight.get(row.session.id):
            session["hindsight"] = known.words
        value["sessions"].append(session)
        count += len(stored)
    value |= {"redactions": report.redactions, "left_out": report.left_out}
    begin, end = _shell(value["title"] or value["conversation"], with_images=report.images)
    # JSON that cannot end the script element around it, nor begin a comment in it.
    return ExportedText(begin + msgspec.json.encode(value).decode().replace("<", "\\u003c") + end, count)


def _shell(title: str, *, with_images: bool) -> tuple[str, str]:
    """The file before and after the JSON."""
    folder = files("crushpy.engine.session") / "page"
    texts = {
        kind: "".join((folder / name).read_text("utf-8") for name in names) for kind, names in FILES.items()
    }
    policy = f"{POLICY}; style-src {_digest(texts['css'])}; script-src {_digest(texts['js'])}"
    policy += "; img-src data:" if with_images else ""
    values = {
        "csp": policy,
        "title": html.escape(one_line(title)),
        "style": texts["css"],
        "script": texts["js"],
    }
    begin, end = texts["html"].split("{{data}}")
    for name, value in values.items():
        place = "{{" + name + "}}"
        begin, end = (value.join(part.split(place)) for part in (begin, end))
    return begin, end


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _session(row: TreeRow, report: PageReport) -> dict[str, Any]:
    info, boundary = row.session, row.boundary
    undone = boundary is not None and boundary.undone_at is not None
    continues = row.relation in ("first", "continues")
    value = {
        "id": info.id,
        "under": row.under,
        "label": "" if continues else "undone" if undone else info.kind,
        "tip": row.tip,
        "generation": info.generation,
        "title": info.title,
        "model": info.model,
        "created_at": info.created_at,
        "usage": msgspec.to_builtins(info.usage),
    }
    if boundary is not None and boundary.trigger != "fork":
        value["boundary"] = msgspec.to_builtins(msgspec.structs.replace(boundary, tail=()))
    return report.safe(value, f"session {info.id}", info.id)


def _message(
    message: messages.Message, session_id: str, states: dict[str, SentState], report: PageReport
) -> dict[str, Any]:
    parts = [part for stored in without_bytes(message).parts for part in _shown(stored, report)]
    value: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(message, parts=tuple(parts)))
    if state := states.get(message.id):
        value["state"] = state
    names = [part.name for part in parts if isinstance(part, messages.ToolResult)]
    place = f"session {session_id}, message {message.id} ({', '.join([message.role, *names])})"
    value = report.safe(value, place, session_id, message.id)
    for part, plain in zip(parts, value["parts"], strict=True):
        _present(part, plain)
    for plain, image in zip(plain_images(value["parts"]), message.images, strict=True):
        plain |= {"data": image.data if report.images else "", "size": image.info.size}
        if not report.images:
            report.leave_out("image")
    return value


def _present(part: messages.Part, plain: dict[str, Any]) -> None:
    """Adds what the page shows of a part in place of what is stored."""
    match part:
        case messages.Text(pasted=pasted) if pasted == ((0, len(part.text)),):
            plain["lines"] = part.text.count("\n") + 1
        case messages.Text() | messages.Note():
            plain["nodes"] = as_nodes(plain.pop("text"))
        case messages.Seed():
            plain["summary"] = as_nodes(plain.get("summary", ""))
        case messages.ToolCall():
            for key, done in (("line", False), ("did", True)):
                plain[key] = " ".join(filter(None, call_words(part.name, plain.get("args", {}), done=done)))
        case messages.ToolResult():
            plain.pop("decision", None)
            plain["state"] = _ending(part)
        case _:
            pass


def _ending(result: messages.ToolResult) -> str:
    """How a call ended, if not well."""
    if result.ended:
        return "not run" if result.ended == "not_run" else "interrupted"
    if result.decision is not None and result.decision.verdict != "allowed":
        return "denied"
    return "failed" if result.is_error else ""


def _in_pieces(text: messages.Text) -> Iterator[messages.Text]:
    """A prompt as what the user wrote and what they pasted, if that is long."""
    start = 0
    for first, end in text.pasted:
        if text.text.count("\n", first, end) >= FOLDED_LINES:
            yield messages.Text(text.text[start:first])
            yield messages.Text(text.text[first:end], ((0, end - first),))
            start = end
    yield messages.Text(text.text[start:])


def _shown(part: messages.Part, report: PageReport) -> Iterator[messages.Part]:
    """The part as the page has it, if it has it."""
    match part:
        case messages.Text():
            yield from _in_pieces(part)
        case messages.Thinking():
            if report.thinking:
                yield messages.Thinking(part.text, seconds=part.seconds)
            elif part.text:
                report.leave_out("thinking block")
        case messages.ToolResult():
            display = part.display if isinstance(part.display, messages.Diff | messages.TodoList) else None
            asked = part.decision and messages.CallDecision(part.decision.verdict, part.decision.by, 0)
            yield msgspec.structs.replace(part, display=display, decision=asked)
        case messages.ToolCall():
            yield msgspec.structs.replace(part, opaque=None)
        case messages.Seed():
            yield msgspec.structs.replace(part, signed=None)
        case _:
            yield part
