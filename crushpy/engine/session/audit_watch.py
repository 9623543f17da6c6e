"""Records in the audit what was decided about each call."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from crushpy.access import Access
from crushpy.engine.approvals import Ruling
from crushpy.engine.turn.call_watch import WatchedCall
from crushpy.errors import CrushpyError
from crushpy.login import login_name
from crushpy.permissions.decision import Decision
from crushpy.redact import redact
from crushpy.storage.audit_records import AuditEntry
from crushpy.storage.records import StorageError
from crushpy.storage.store import Store
from crushpy.tools.base import Outcome

READ_CHARS = 20_000
"""Of a text that is recorded: so much is looked through for secrets, ..."""
KEPT_CHARS = 4_000
"""... and so much is kept."""
KEPT_PARTS = 50
BETWEEN = "\n\0\n"
"""Between texts that are redacted together: no secret goes over it."""


class AuditWatch:
    """Looks on at all calls of a conversation and its tasks. What cannot be recorded does not run."""

    def __init__(self, store: Store, root_id: Callable[[], str]) -> None:
        self._store = store
        self._root_id = root_id

    async def ruled(self, watched: WatchedCall, ruling: Ruling) -> None:
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
        entry = AuditEntry("decision", _safe(body), watched.session_id, watched.call.id)
        try:
            await self._store.add_audit(self._root_id(), [entry])
        except CrushpyError as error:
            raise StorageError(
                f"{watched.call.name} was not run: what was decided could not be recorded. {error.message}",
                error.hint,
            ) from error

    async def begins(self, watched: WatchedCall, ruling: Ruling) -> None:
        pass

    async def ended(self, watched: WatchedCall, outcome: Outcome | None) -> None:
        pass


def _touched(access: Access) -> dict[str, Any]:
    return {"tool": access.tool, "kind": access.kind, "value": access.value, "writes": access.writes}


def _part(part: Decision) -> dict[str, Any]:
    said: dict[str, Any] = {"verdict": part.verdict, "reason": part.reason}
    return said | ({"about": part.about} if part.about else {})


def _safe(body: dict[str, Any]) -> dict[str, Any]:
    """The same without secrets, every text no longer than is of use."""
    texts = list(dict.fromkeys(_texts(body)))
    return cast("dict[str, Any]", _replaced(body, dict(zip(texts, _redacted(texts), strict=True))))


def _redacted(texts: Sequence[str]) -> Iterable[str]:
    """All in one go: most of what redacting costs is to begin."""
    read = [text[:READ_CHARS] for text in texts]
    together = redact(BETWEEN.join(read)).split(BETWEEN)
    safe = together if len(together) == len(texts) else map(redact, read)
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
