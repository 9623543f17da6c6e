"""`crushpy sessions context`: what fills the window, message by message, and edits of it."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crushpy.cli.folder import working_folder
from crushpy.cli.output import AsJson, print_json, print_text
from crushpy.cli.stored_sessions import SessionId

if TYPE_CHECKING:
    from crushpy.context.budget import Budget
    from crushpy.context.edits import ContextEdit, EditEffect
    from crushpy.context.inspect import Inspection, Row
    from crushpy.engine.conversation import Conversation

Messages = list[str] | None


def register(group: typer.Typer) -> None:
    group.command("context")(context_command)


def context_command(
    session: SessionId,
    drop: Annotated[
        Messages, typer.Option("--drop", metavar="MESSAGE", help="Leave it out of requests. Repeatable.")
    ] = None,
    cut: Annotated[
        Messages,
        typer.Option(
            "--cut",
            metavar="MESSAGE",
            help="Send its head and tail only; `superseded`: all old views of files. Repeatable.",
        ),
    ] = None,
    restore: Annotated[
        Messages,
        typer.Option("--restore", metavar="MESSAGE", help="Send it whole again; `all`. Repeatable."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the effect and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what fills the model's window at the tip of a conversation, part by part, and edit it.

    Nothing is deleted: what is dropped or cut stays readable, searchable and exportable, and --restore brings
    it back. A call and its results are dropped and restored together.
    """
    from crushpy.context.edits import ContextEdit

    edits = [
        *(ContextEdit("drop", one) for one in drop or ()),
        *(ContextEdit("cut", one) for one in cut or ()),
        *(ContextEdit("restore", one) for one in restore or ()),
    ]
    asyncio.run(_context(session, edits, dry_run=dry_run, as_json=as_json))


async def _context(name: str, edits: "list[ContextEdit]", *, dry_run: bool, as_json: bool) -> None:
    from crushpy.bootstrap import ProjectEnvironment, open_conversation
    from crushpy.core.start_options import StartOptions

    around = ProjectEnvironment(working_folder())
    wanted = StartOptions(
        session="" if name == "latest" else name,
        resume_latest=name == "latest",
        read_only=dry_run or not edits,
    )
    conversation = await open_conversation(around, wanted)
    try:
        await conversation.context.count_exactly()
        if edits:
            await _edit(conversation, edits, dry_run=dry_run, as_json=as_json)
        else:
            _list(conversation, as_json=as_json)
    finally:
        await conversation.close()


async def _edit(
    conversation: "Conversation", edits: "list[ContextEdit]", *, dry_run: bool, as_json: bool
) -> None:
    effect = await conversation.context.edit(edits, dry_run=dry_run)
    session_id = conversation.info.id
    if as_json:
        import msgspec

        data: dict[str, Any] = {"session_id": session_id, "dry_run": dry_run, **msgspec.to_builtins(effect)}
        del data["cuts"]
        print_json(data)
        return
    print_text(
        "\n".join(_effect_lines(session_id, effect, conversation.context.budget(), dry_run=dry_run)) + "\n"
    )


def _effect_lines(session_id: str, effect: "EditEffect", after: "Budget", *, dry_run: bool) -> list[str]:
    from crushpy.context.edits import DONE, effect_words

    lines = [effect_words(effect)]
    for one in effect.messages:
        along = "" if one.asked else "  (with its unit)"
        lines.append(f"  {one.message_id}  {DONE[one.kind]}: {one.before:,} -> {one.after:,} tokens{along}")
    if dry_run:
        return [*lines, "Nothing was changed: leave --dry-run out to do it."]
    lines.append(f"The next request: {_figures(after)} of the window.")
    if any(one.kind != "restore" for one in effect.messages):
        names = " ".join(f"--restore {one.message_id}" for one in effect.messages[:3] if one.asked)
        names = "--restore all" if len(effect.messages) > 3 else names
        lines.append(f"To take it back: crushpy sessions context {session_id} {names}")
    return lines


def _figures(budget: "Budget") -> str:
    return f"{'~' if budget.estimated else ''}{budget.used:,} tokens ({budget.used_pct}%)"


def _list(conversation: "Conversation", *, as_json: bool) -> None:
    inspection = conversation.context.inspect()
    session_id = conversation.info.id
    if as_json:
        import msgspec

        print_json({"session_id": session_id, **msgspec.to_builtins(inspection)})
        return
    print_text("\n".join(_listing(session_id, inspection)) + "\n")


def _listing(session_id: str, inspection: "Inspection") -> list[str]:
    from crushpy.context.edits import offer_words
    from crushpy.context.forecast import in_words

    budget = inspection.budget
    known, about = ("" if budget.window_known else "?"), ("~" if budget.estimated else "")
    lines = [f"{about}{budget.used:,} of {budget.window:,}{known} tokens used ({budget.used_pct}%)"]
    if inspection.forecast is not None:
        lines += in_words(inspection.forecast)
    if inspection.old_views.message_ids:
        offer = offer_words(inspection.old_views)
        lines.append(f"{offer}: crushpy sessions context {session_id} --cut superseded")
    lines += ["", f"{'tokens':>9}  {'share':>6}  {'behind':>9}  {'message':<12}  {'kind':<13} "]
    return [*lines, *(_line(row, budget.window) for row in inspection.rows)]


def _line(row: "Row", window: int) -> str:
    from crushpy.security.sanitize import one_line

    share = row.tokens * 100 / window
    behind = f"{row.cache_lost:,}" if row.message_id else ""
    state = f"  [{row.state}; whole {row.whole_tokens:,}]" if row.state else ""
    cached = "  cached" if row.cached else ""
    start = f"{row.tokens:>9,}  {share:5.1f}%  {behind:>9}  {row.message_id:<12}  {row.kind:<13}"
    return f"{start} {one_line(row.name)}{state}{cached}"
