"""A session and those it continues, written in full: piece by piece, so that no more than a page is held."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

import msgspec

from crushpy.core.messages import Data, Message
from crushpy.engine.session.export import (
    States,
    edited,
    head_as_markdown,
    messages_as_json,
    messages_as_markdown,
    redacted,
    session_as_json,
)
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store

ExportForm = Literal["markdown", "json"]


class ExportPiece(Data, frozen=True):
    """Some of the text, and how many messages are in it."""

    text: str
    messages: int = 0


class _Markdown:
    """Blocks between which blank lines go."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._begun = False

    def begin(self, root_id: str, *, redacted: bool) -> str:
        return ""

    def session(self, info: SessionInfo) -> str:
        return self._joined(head_as_markdown(info))

    def page(self, messages: Sequence[Message]) -> str:
        return self._joined(messages_as_markdown(messages, self._states))

    def end_session(self) -> str:
        return ""

    def end(self) -> str:
        return "\n"

    def _joined(self, blocks: Sequence[str]) -> str:
        before = "\n\n" if self._begun and blocks else ""
        self._begun = True
        return before + "\n\n".join(blocks)


class _Json:
    """One object with all sessions, each with all its messages."""

    def __init__(self, states: States, *, plain_ascii: bool) -> None:
        self._states = states
        self._ascii = plain_ascii
        self._sessions = 0
        self._messages = 0

    def begin(self, root_id: str, *, redacted: bool) -> str:
        head = self._written({"conversation": root_id, "redacted": redacted}, 0)
        return head.removesuffix("\n}") + ',\n  "sessions": ['

    def session(self, info: SessionInfo) -> str:
        head = self._written({**session_as_json(info), "system": info.system}, 4)
        before = "," if self._sessions else ""
        self._sessions += 1
        self._messages = 0
        return f'{before}\n    {head.removesuffix("}").rstrip()},\n      "messages": ['

    def page(self, messages: Sequence[Message]) -> str:
        pieces: list[str] = []
        for message in messages_as_json(messages, self._states):
            before = "," if self._messages else ""
            self._messages += 1
            pieces.append(f"{before}\n        {self._written(message, 8)}")
        return "".join(pieces)

    def end_session(self) -> str:
        return ("\n      ]" if self._messages else "]") + "\n    }"

    def end(self) -> str:
        return "\n  ]\n}\n"

    def _written(self, value: Any, depth: int) -> str:
        if self._ascii:
            text = json.dumps(value, indent=2)
        else:
            text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        return text.replace("\n", "\n" + " " * depth)  # no text of it holds a line break that is not escaped


async def export_pieces(
    store: Store, session_id: str, form: ExportForm, *, keep_secrets: bool, plain_ascii: bool
) -> AsyncIterator[ExportPiece]:
    """The whole text, a page of messages at a time, each as far as it led here."""
    states = await edited(store, session_id)
    sessions = await store.sessions.load_lineage(session_id)
    writer = _Markdown(states) if form == "markdown" else _Json(states, plain_ascii=plain_ascii)
    yield ExportPiece(writer.begin(sessions[-1].root_id, redacted=not keep_secrets))
    for info, (_, last) in zip(sessions, await store.boundaries.load_reach(session_id), strict=True):
        shown = info if keep_secrets else redacted(info, ())[0]
        yield ExportPiece(writer.session(shown))
        after = 0
        while True:
            messages, after = await store.messages.load_page(info.id, last, after)
            if not messages:
                break
            text = await asyncio.to_thread(_page, writer, info, messages, keep_secrets=keep_secrets)
            yield ExportPiece(text, len(messages))
        yield ExportPiece(writer.end_session())
    yield ExportPiece(writer.end())


def _page(
    writer: _Markdown | _Json, info: SessionInfo, messages: Sequence[Message], *, keep_secrets: bool
) -> str:
    return writer.page(messages if keep_secrets else redacted(info, messages)[1])
