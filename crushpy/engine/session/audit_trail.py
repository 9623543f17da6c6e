"""Records in the audit what was decided about each call."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from crushpy.core.access import Access
from crushpy.core.errors import CrushpyError
from crushpy.engine.approvals import Ruling
from crushpy.engine.turn.call_observer import ObservedCall
from crushpy.permissions.decision import Decision
from crushpy.security.redact import Redactor
from crushpy.storage.audit_records import AuditEntry
from crushpy.storage.call_records import CallDecided
from crushpy.storage.records import StorageError
from crushpy.storage.store import Store
from crushpy.util.login import login_name

READ_CHARS = 20_000
"""Of a text that is recorded: so much is looked through for secrets, ..."""
KEPT_CHARS = 4_000
"""... and so much is kept."""
KEPT_PARTS = 50
KEPT_TEXTS = 500
BETWEEN = "\n\0\n"
"""Between texts that are redacted together: no secret goes over it."""


class AuditTrail:
    """Of all calls of a conversation and its tasks. What cannot be recorded does not run."""

    def __init__(self, store: Store, root_id: Callable[[], str]) -> None:
        self._store = store
        self._root_id = root_id
        self._safe = SafeTexts()
        self._reply = ""
        """The message whose calls `_safe` was made for."""

    def entry(self, watched: ObservedCall, ruling: Ruling) -> CallDecided:
        """What there is to record of a decision."""
        if watched.message_id != self._reply:  # a secret may have come since
            self._reply, self._safe = watched.message_id, SafeTexts()
        decision = watched.decision
        body: dict[str, Any] = {
            "tool": watched.call.name,
            "touches": [_touched(access) for access in watched.accesses[:KEPT_PARTS]],
            "verdict": decision.verdict,
            "by": decision.by,
            "user": login_name(),
            "reason": decision.reason,
            "parts": [_part(part) for part in ruling.decision.parts[:KEPT_PARTS]],
            "mode": decision.mode,
        }
        told = ("answer", "covers", "words", "sandbox")
        body |= {name: value for name in told if (value := getattr(decision, name))}
        if watched.task:
            body["task"] = watched.task
        entry = AuditEntry("decision", self._safe.of(body), watched.session_id, watched.call.id)
        return CallDecided(self._root_id(), (entry,))

    async def record(self, watched: ObservedCall, ruling: Ruling) -> None:
        decided = self.entry(watched, ruling)
        try:
            await self._store.audit.append(decided.root_id, decided.entries)
        except CrushpyError as error:
            raise StorageError(
                f"{watched.call.name} was not run: what was decided could not be recorded. {error.message}",
                error.hint,
            ) from error


def _touched(access: Access) -> dict[str, Any]:
    return {"tool": access.tool, "kind": access.kind, "value": access.value, "writes": access.writes}


def _part(part: Decision) -> dict[str, Any]:
    said: dict[str, Any] = {"verdict": part.verdict, "reason": part.reason}
    return said | ({"about": part.about} if part.about else {})


class SafeTexts:
    """Texts without secrets, no longer than is of use. The calls of one reply say much the same."""

    def __init__(self) -> None:
        self._redact = Redactor().text
        self._known: dict[str, str] = {}
        self._last: tuple[dict[str, Any], dict[str, Any]] = ({}, {})

    def of(self, body: dict[str, Any]) -> dict[str, Any]:
        """The same with safe texts."""
        if body != self._last[0]:
            self._last = (body, self._of(body))
        return self._last[1]

    def _of(self, body: dict[str, Any]) -> dict[str, Any]:
        texts = [text for text in dict.fromkeys(_texts(body)) if text not in self._known]
        if len(self._known) > KEPT_TEXTS:
            self._known.clear()
            texts = list(dict.fromkeys(_texts(body)))
        self._known.update(zip(texts, self._redacted(texts), strict=True))
        return cast("dict[str, Any]", _replaced(body, self._known))

    def _redacted(self, texts: Sequence[str]) -> Iterator[str]:
        """All in one go: most of what redacting costs is to begin."""
        if not texts:
            return
        read = [text[:READ_CHARS] for text in texts]
        together = self._redact(BETWEEN.join(read)).split(BETWEEN)
        safe = together if len(together) == len(texts) else map(self._redact, read)
        for text, kept in zip(texts, safe, strict=True):
            whole = len(text) <= READ_CHARS and len(kept) <= KEPT_CHARS
            yield kept if whole else f"{kept[:KEPT_CHARS]}…"


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
