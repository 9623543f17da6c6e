"""`crushpy sessions tree|search|undo`: along the boundaries of conversations."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crushpy.cli import sessions as base

if TYPE_CHECKING:
    from crushpy.storage.records import BoundaryInfo, SearchHit, SessionInfo

HITS_EACH = 3
"""Of one conversation, how many places a search shows."""


def register(group: typer.Typer) -> None:
    group.command("tree")(tree_command)
    group.command("search")(search_command)
    group.command("undo")(undo_command)
    group.command("context")(context_command)


def tree_command(session: base.SessionId, as_json: base.AsJson = False) -> None:
    """Draw the sessions of a conversation: what continues what, and why."""
    base.run(_tree(session, as_json=as_json))


def search_command(
    query: Annotated[str, typer.Argument(help='Words to look for; "a phrase" in quotes.')],
    everywhere: Annotated[bool, typer.Option("--all", help="In all folders, not only this one.")] = False,
    session: Annotated[
        str,
        typer.Option("--session", "-s", metavar="ID", help="Only in this session and those it continues."),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many conversations.")] = 10,
    as_json: base.AsJson = False,
) -> None:
    """Find what was said or done, before and after every fresh start."""
    base.run(_search(query, session, everywhere=everywhere, limit=limit, as_json=as_json))


def undo_command(session: base.SessionId) -> None:
    """Take back the fresh start that opened a session: the one before it goes on where it was."""
    base.run(_undo(session))


def context_command(session: base.SessionId, as_json: base.AsJson = False) -> None:
    """Show what fills the model's window at the tip of a conversation, part by part."""
    base.run(_context(session, as_json=as_json))


async def _context(name: str, *, as_json: bool) -> None:
    from crushpy.bootstrap import ProjectEnvironment, open_conversation
    from crushpy.start_options import StartOptions

    around = ProjectEnvironment(base.folder())
    wanted = StartOptions(
        session="" if name == "latest" else name,
        resume_latest=name == "latest",
        read_only=True,
    )
    conversation = await open_conversation(around, wanted)
    try:
        await conversation.count_exactly()
        inspection = conversation.inspect()
    finally:
        await conversation.close()
    if as_json:
        import msgspec

        base.print_json(msgspec.to_builtins(inspection))
        return
    from crushpy.sanitize import one_line

    budget = inspection.budget
    known, about = ("" if budget.window_known else "?"), ("~" if budget.estimated else "")
    lines = [f"{about}{budget.used:,} of {budget.window:,}{known} tokens used ({budget.used_pct}%)", ""]
    for row in inspection.rows:
        share = row.tokens * 100 / budget.window
        cached = "  cached" if row.cached else ""
        lines.append(f"{row.tokens:>9,}  {share:5.1f}%  {row.kind:<13} {one_line(row.name)}{cached}")
    base.print_text("\n".join(lines) + "\n")


async def _tree(name: str, *, as_json: bool) -> None:
    async with base.open_store() as store:
        info = await base.find(store, name)
        sessions = await store.conversation(info.root_id)
        boundaries = {boundary.child_id: boundary for boundary in await store.boundaries(info.root_id)}
        tip = await store.tip(info.root_id)
    if as_json:
        import msgspec

        rows: list[dict[str, Any]] = [
            {
                **base.brief(one),
                "boundary": msgspec.to_builtins(boundaries.get(one.id)),
                "tip": one.id == tip.id,
            }
            for one in sessions
        ]
        base.print_json(rows)
        return
    base.print_text("\n".join(draw(sessions, boundaries, tip.id)) + "\n")


def draw(sessions: "list[SessionInfo]", boundaries: "dict[str, BoundaryInfo]", tip: str) -> list[str]:
    """The tree as lines. A session whose parent is gone stands at the left, and none is drawn twice."""
    known = {session.id for session in sessions}
    children: dict[str | None, list[SessionInfo]] = {}
    for session in sessions:
        parent = session.parent_id if session.parent_id in known else None
        children.setdefault(parent, []).append(session)
    lines: list[str] = []
    drawn: set[str] = set()

    def add(session: "SessionInfo", lead: str, branch: str, below: str) -> None:
        if session.id in drawn:
            return
        drawn.add(session.id)
        lines.append(f"{lead}{branch}{_line(session, boundaries.get(session.id), tip)}")
        own = children.get(session.id, [])
        for number, child in enumerate(own):
            last = number == len(own) - 1
            add(child, lead + below, "└─ " if last else "├─ ", "   " if last else "│  ")

    for root in children.get(None, []):
        add(root, "", "", "")
    return lines


def _line(session: "SessionInfo", boundary: "BoundaryInfo | None", tip: str) -> str:
    from crushpy.messages import counted
    from crushpy.sanitize import one_line

    words = [session.id, _ago(session.updated_at), counted(session.message_count, "message")]
    if boundary is None:
        words.append(one_line(session.title))
    else:
        words.append(f"{boundary.trigger}: {boundary.tokens_before:,} -> {boundary.tokens_after:,} tokens")
        total = sum(counts[0] for counts in boundary.coverage.values())
        carried = sum(counts[2] for counts in boundary.coverage.values())
        if total:
            words.append(f"{carried}/{total} facts carried")
        if boundary.undone_at is not None:
            words.append("undone")
    if session.kind in ("fork", "task"):
        words.append("branch" if session.kind == "fork" else "task")
    if session.id == tip:
        words.append("<- tip")
    return "  ".join(words)


async def _search(query: str, session: str, *, everywhere: bool, limit: int, as_json: bool) -> None:
    async with base.open_store() as store:
        within = (await base.find(store, session)).id if session else None
        cwd = None if everywhere or within else str(base.folder())
        hits = await store.search(query, within=within, cwd=cwd, limit=limit * HITS_EACH * 4)
    by_conversation: dict[str, list[SearchHit]] = {}
    for hit in hits:
        by_conversation.setdefault(hit.root_id, []).append(hit)
    found = dict(list(by_conversation.items())[:limit])
    if as_json:
        import msgspec

        base.print_json([msgspec.to_builtins(hit) for shown in found.values() for hit in shown])
        return
    if not found:
        where = "" if everywhere or within else " in this folder; --all looks everywhere"
        print(f"Nothing found{where}.", file=sys.stderr)
        raise typer.Exit(1)
    base.print_text("\n".join(map(_found, found.values())))


def _found(hits: "list[SearchHit]") -> str:
    """One conversation: its title once, then the places, each with the session to jump to."""
    from crushpy.messages import counted
    from crushpy.sanitize import one_line

    lines = [f"{hits[0].root_id}  {one_line(hits[0].title)}"]
    for hit in hits[:HITS_EACH]:
        lines.append(f"  {hit.session_id}  {hit.role} {hit.message_id}, {_ago(hit.created_at)}")
        lines.append(f"    {one_line(hit.snippet)}")
    if len(hits) > HITS_EACH:
        lines.append(f"  and {counted(len(hits) - HITS_EACH, 'more place')}")
    return "\n".join(lines) + "\n"


def _ago(moment: float) -> str:
    from crushpy.engine.session.export import age

    since = age(time.time() - moment)
    return since if since == "now" else f"{since} ago"


async def _undo(name: str) -> None:
    from crushpy.engine.compaction.undo import undo_boundary

    async with base.open_store() as store:
        info = await base.find(store, name)
        await store.take_lease(info.id)  # not while another process works on it
        try:
            parent = await undo_boundary(store, info.id)
        finally:
            await store.drop_leases()
    print(f"Undone: {parent.id} goes on where it was. {info.id} stays as a branch; files were not touched.")
    print(f"  crushpy run --session {parent.id} ...   goes on there")
