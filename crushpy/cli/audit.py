"""`crushpy audit`: decisions and changes, and whether their record is intact."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crushpy.cli.command_helpers import (
    AsJson,
    add_group,
    find_session,
    open_store,
    print_json,
    print_lines,
    print_text,
)
from crushpy.core.errors import UsageError
from crushpy.core.messages import counted
from crushpy.security.sanitize import one_line

if TYPE_CHECKING:
    from crushpy.storage.audit_store import AuditChain, AuditFault
    from crushpy.storage.generated.rows import AuditRow
    from crushpy.storage.store import Store

ConversationId = Annotated[
    str,
    typer.Argument(
        metavar="[ID]",
        help="A session's id, a prefix of one, or `latest`; also of a deleted conversation.",
        show_default=False,
    ),
]
SHOWN_HASH_CHARS = 12


def register(app: typer.Typer) -> None:
    add_group(app, "audit", {"show": show_audit, "verify": verify_command})


async def show_audit(conversation: ConversationId = "latest", as_json: AsJson = False) -> None:
    """Show all decisions and changes of a conversation; without an ID, the latest of this folder."""
    async with open_store() as store:
        chain = await store.audit.load_chain(await _find_conversation(store, conversation))
    if as_json:
        print_json([_as_json(record) for record in chain.records])
    elif not chain.records:
        print_text(f"Nothing is recorded for conversation {chain.root_id}.\n")
    else:
        gone = [] if chain.is_stored else ["The conversation itself is no longer stored."]
        print_lines([f"Conversation {chain.root_id}", *_format_records(chain.records), *gone])


async def verify_command(conversation: ConversationId = "", as_json: AsJson = False) -> None:
    """Verify the chain of one or all conversations. Exit code 1 if one is broken."""
    from crushpy.storage.audit_store import find_fault

    async with open_store() as store:
        chosen = [await _find_conversation(store, conversation)] if conversation else []
        roots = chosen or await store.audit.list_conversations()
        found = [
            (chain, find_fault(chain)) for chain in [await store.audit.load_chain(root) for root in roots]
        ]
    if as_json:
        print_json([_verdict_as_json(chain, fault) for chain, fault in found])
    else:
        lines = [
            f"{chain.root_id}: record {fault.number} is bad: {fault.reason}"
            if fault
            else f"{chain.root_id}: {counted(len(chain.records), 'record')}, the chain holds"
            for chain, fault in found
        ]
        print_lines(lines or ["Nothing is recorded."])
    if any(fault for _, fault in found):
        raise typer.Exit(1)


async def _find_conversation(store: "Store", name: str) -> str:
    """The root id of an existing conversation, or of a deleted one that is recorded."""
    from crushpy.engine.session.browser import SessionBrowser

    try:
        return (await find_session(SessionBrowser(store), name)).root_id
    except UsageError:
        recorded = await store.audit.list_conversations(name.strip().lower()) if name != "latest" else []
        if len(recorded) != 1:
            raise
        return recorded[0]


def _as_json(record: "AuditRow") -> dict[str, Any]:
    import msgspec

    fields: dict[str, Any] = msgspec.structs.asdict(record)
    return {**fields, **msgspec.json.decode(fields.pop("body"))}


def _verdict_as_json(chain: "AuditChain", fault: "AuditFault | None") -> dict[str, Any]:
    row: dict[str, Any] = {"conversation": chain.root_id, "records": len(chain.records), "holds": not fault}
    return row | ({"first_bad": fault.number, "reason": fault.reason} if fault else {})


def _format_records(records: "Sequence[AuditRow]") -> list[str]:
    """A line for each record, grouped by day."""
    lines: list[str] = []
    day = ""
    for record in records:
        moment = time.localtime(record.at)
        if (today := time.strftime("%Y-%m-%d", moment)) != day:
            day = today
            lines.append(day)
        lines.append(f"{record.number:>5}  {time.strftime('%H:%M:%S', moment)}  {_format_record(record)}")
    return lines


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
    targets = ", ".join(str(one.get("value", "")) for one in content.get("touches", ()) if one.get("value"))
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
