"""`crushpy audit`: decisions and changes."""

import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crushpy.cli.command_helpers import (
    AsJson,
    add_group,
    argument,
    open_store,
    print_either,
)
from crushpy.cli.workspace import working_folder
from crushpy.core.errors import UsageError
from crushpy.security.sanitize import one_line

if TYPE_CHECKING:
    from crushpy.storage.generated.rows import AuditRow
    from crushpy.storage.store import Store

ConversationId = Annotated[
    str,
    argument("A session's id, a prefix of one, or `latest`; also of a deleted conversation.", metavar="[ID]"),
]
SHOWN_HASH_CHARS = 12


def register(app: typer.Typer) -> None:
    add_group(app, "audit", {"show": show_audit})


async def show_audit(conversation: ConversationId = "latest", as_json: AsJson = False) -> None:
    """Show all decisions and changes of a conversation; without an ID, the latest of this folder."""
    async with open_store() as store:
        root_id, is_stored = await _find_conversation(store, conversation)
        records = await store.audit.load(root_id)
    gone = [] if is_stored else ["The conversation itself is no longer stored."]
    lines = [f"Conversation {root_id}", *_format_records(records), *gone]
    none = [f"Nothing is recorded for conversation {root_id}."]
    print_either(as_json, [_as_json(record) for record in records], lines if records else none)


async def _find_conversation(store: "Store", name: str) -> tuple[str, bool]:
    """The root id of a conversation, also of a deleted one that is recorded; and whether it is stored."""
    from crushpy.engine.session.browser import SessionBrowser

    try:
        return (await SessionBrowser(store).find(name, str(working_folder()))).root_id, True
    except UsageError:
        recorded = await store.audit.list_conversations(name.strip().lower()) if name != "latest" else []
        if len(recorded) != 1:
            raise
        return recorded[0], False


def _as_json(record: "AuditRow") -> dict[str, Any]:
    import msgspec

    fields: dict[str, Any] = msgspec.structs.asdict(record)
    return {**fields, **msgspec.json.decode(fields.pop("body"))}


def _format_records(records: "Sequence[AuditRow]") -> Iterator[str]:
    """A line for each record, grouped by day."""
    for day, found in groupby(records, lambda record: time.strftime("%Y-%m-%d", time.localtime(record.at))):
        yield day
        for record in found:
            moment = time.strftime("%H:%M:%S", time.localtime(record.at))
            yield f"{record.number:>5}  {moment}  {_format_record(record)}"


def _format_record(record: "AuditRow") -> str:
    import msgspec

    content = msgspec.json.decode(record.body)
    match record.kind:
        case "decision":
            text = _format_decision(content)
        case "change":
            before, after = (content.get(name) or "nothing" for name in ("before", "after"))
            text = f"changed {content.get('path')}: {before[:SHOWN_HASH_CHARS]} -> {after[:SHOWN_HASH_CHARS]}"
        case "hook":
            text = f"hook {content.get('event')}: {content.get('command')}  ({content.get('ended')})"
        case "deleted":
            text = f"deleted by {content.get('by')}: the conversation is gone, this record stays"
        case _:
            text = record.kind
    return one_line(text)


def _format_decision(content: dict[str, Any]) -> str:
    targets = ", ".join(
        str(touched.get("value", "")) for touched in content.get("touches", ()) if touched.get("value")
    )
    by_user = f" by {content.get('user')}" if content.get("by") == "user" else ""
    answer = {"conversation": " for this conversation", "once": " once", "always": " always", "deny": ""}
    text = str(content.get("answer", ""))
    outcome = f"{content.get('verdict')}{answer.get(text, '')}{by_user}"
    notes = [str(content.get("reason", ""))]
    notes += [f"the question was {text}"] if text and text not in answer else []
    notes += [f'"{content["words"]}"'] if content.get("words") else []
    notes += [f"sandbox {content['sandbox']}"] if content.get("sandbox") else []
    notes += [f"{content['mode']} mode"] if content.get("mode") not in (None, "", "ask") else []
    notes += ["in a task"] if content.get("task") else []
    return f"{outcome}: {content.get('tool')} {targets}".rstrip() + f"  ({'; '.join(filter(None, notes))})"
