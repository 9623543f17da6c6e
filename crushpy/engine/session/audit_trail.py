"""Records the decision about each call in the audit."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from crushpy.core.access import Access
from crushpy.core.errors import CrushpyError
from crushpy.engine.approvals import Ruling
from crushpy.engine.turn.call_observer import ObservedCall
from crushpy.permissions.decision import Decision
from crushpy.security.redact import Redactor
from crushpy.storage.records import AuditEntry, CallDecided, DatabaseLost, StorageError
from crushpy.storage.store import Store
from crushpy.util.login import login_name

READ_CHARS = 20_000
"""Of a recorded text: how much is searched for secrets, ..."""
STORED_CHARS = 4_000
"""... and how much is stored."""
STORED_PARTS = 50
CACHED_TEXTS = 500
SEPARATOR = "\n\0\n"
"""Between texts that are redacted together: no secret spans it."""


class AuditTrail:
    """For all calls of a conversation and its tasks. Without a record a call does not run."""

    def __init__(self, store: Store, root_id: str) -> None:
        self._store = store
        self._root_id = root_id
        self._safe = SafeTexts()
        self._reply = ""
        """The message for whose calls `_safe` was made."""

    def entry(self, watched: ObservedCall, ruling: Ruling) -> CallDecided:
        """The record of a decision."""
        if watched.message_id != self._reply:  # new secrets may be known
            self._reply, self._safe = watched.message_id, SafeTexts()
        decision = watched.decision
        body: dict[str, Any] = {
            "tool": watched.call.name,
            "touches": [_touched(access) for access in watched.accesses[:STORED_PARTS]],
            "verdict": decision.verdict,
            "by": decision.by,
            "user": login_name(),
            "reason": decision.reason,
            "parts": [_part(part) for part in ruling.decision.parts[:STORED_PARTS]],
            "mode": decision.mode,
        }
        told = ("answer", "covers", "words", "sandbox")
        body |= {name: value for name in told if (value := getattr(decision, name))}
        if watched.task:
            body["task"] = watched.task
        entry = AuditEntry("decision", self._safe.redact_body(body), watched.session_id, watched.call.id)
        return CallDecided(self._root_id, (entry,))

    async def record(self, watched: ObservedCall, ruling: Ruling) -> None:
        decided = self.entry(watched, ruling)
        try:
            await self._store.audit.append(decided.root_id, decided.entries)
        except CrushpyError as error:
            raise (DatabaseLost if isinstance(error, DatabaseLost) else StorageError)(
                f"{watched.call.name} was not run: the decision could not be recorded. {error.message}",
                error.hint,
            ) from error


def _touched(access: Access) -> dict[str, Any]:
    return {"tool": access.tool, "kind": access.kind, "value": access.value, "writes": access.writes}


def _part(part: Decision) -> dict[str, Any]:
    said: dict[str, Any] = {"verdict": part.verdict, "reason": part.reason}
    return said | ({"about": part.about} if part.about else {})


class SafeTexts:
    """Redacts and shortens texts, with a cache: the calls of one reply are much alike."""

    def __init__(self) -> None:
        self._redact = Redactor().text
        self._known: dict[str, str] = {}
        self._last: tuple[dict[str, Any], dict[str, Any]] = ({}, {})

    def redact_body(self, body: dict[str, Any]) -> dict[str, Any]:
        """`body` with all texts redacted."""
        if body != self._last[0]:
            self._last = (body, self._redact_body(body))
        return self._last[1]

    def _redact_body(self, body: dict[str, Any]) -> dict[str, Any]:
        texts = [text for text in dict.fromkeys(_texts(body)) if text not in self._known]
        if len(self._known) > CACHED_TEXTS:
            self._known.clear()
            texts = list(dict.fromkeys(_texts(body)))
        self._known.update(zip(texts, self._redacted(texts), strict=True))
        return cast("dict[str, Any]", _replaced(body, self._known))

    def _redacted(self, texts: Sequence[str]) -> Iterator[str]:
        """Redacts all at once: most of the cost is per call."""
        if not texts:
            return
        read = [text[:READ_CHARS] for text in texts]
        together = self._redact(SEPARATOR.join(read)).split(SEPARATOR)
        safe = together if len(together) == len(texts) else map(self._redact, read)
        for text, kept in zip(texts, safe, strict=True):
            whole = len(text) <= READ_CHARS and len(kept) <= STORED_CHARS
            yield kept if whole else f"{kept[:STORED_CHARS]}…"


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for inner in cast("dict[str, object]", value).values():
                yield from _texts(inner)
        case list():
            for inner in cast("list[object]", value):
                yield from _texts(inner)
        case _:
            pass


def _replaced(value: object, by: Mapping[str, str]) -> object:
    match value:
        case str():
            return by[value]
        case dict():
            return {name: _replaced(inner, by) for name, inner in cast("dict[str, object]", value).items()}
        case list():
            return [_replaced(inner, by) for inner in cast("list[object]", value)]
        case _:
            return value
