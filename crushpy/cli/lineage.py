"""`crushpy sessions tree|search|undo`: along the boundaries of conversations."""

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crushpy.cli.folder import working_folder
from crushpy.cli.output import AsJson, print_json, print_text
from crushpy.cli.stored_sessions import SessionId, find_session, open_browser

if TYPE_CHECKING:
    from crushpy.engine.session.browser import Branch, SearchGroup, SessionBrowser

HITS_EACH = 3
"""Of one conversation, how many places a search shows: a terminal scrolls away."""


def register(group: typer.Typer) -> None:
    group.command("tree")(tree_command)
    group.command("search")(search_command)
    group.command("undo")(undo_command)


def tree_command(session: SessionId, as_json: AsJson = False) -> None:
    """Draw the sessions of a conversation: what continues what, and why."""
    asyncio.run(_tree(session, as_json=as_json))


def search_command(
    query: Annotated[str, typer.Argument(help='Words to look for; "a phrase" in quotes.')],
    everywhere: Annotated[bool, typer.Option("--all", help="In all folders, not only this one.")] = False,
    session: Annotated[
        str,
        typer.Option("--session", "-s", metavar="ID", help="Only in this session and those it continues."),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many conversations.")] = 10,
    wait: Annotated[bool, typer.Option("--wait", help="Take all messages into the index first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find what was said or done, before and after every fresh start."""
    asyncio.run(_search(query, session, everywhere=everywhere, limit=limit, wait=wait, as_json=as_json))


def undo_command(session: SessionId) -> None:
    """Take back the fresh start that opened a session: the one before it goes on where it was."""
    asyncio.run(_undo(session))


async def _tree(name: str, *, as_json: bool) -> None:
    async with open_browser() as browser:
        branches = await browser.tree((await find_session(browser, name)).id)
    if as_json:
        import msgspec

        from crushpy.engine.session.export import session_as_json

        oldest_first = sorted(branches, key=lambda one: (one.session.created_at, one.session.generation))
        rows: list[dict[str, Any]] = [
            {
                **session_as_json(branch.session),
                "boundary": msgspec.to_builtins(branch.boundary),
                "tip": branch.tip,
            }
            for branch in oldest_first
        ]
        print_json(rows)
        return
    print_text("\n".join(_draw(branches)) + "\n")


def _draw(branches: "list[Branch]") -> list[str]:
    """The tree as lines, as the app draws it: a line of continuations stays at one depth."""
    children: dict[str, list[Branch]] = {}
    for branch in branches:
        children.setdefault(branch.under, []).append(branch)
    lines: list[str] = []

    def add(branch: "Branch", lead: str, mark: str, below: str) -> None:
        lines.append(f"{lead}{mark}{_line(branch)}")
        own = children.get(branch.session.id, [])
        for number, child in enumerate(own):
            last = number == len(own) - 1
            add(child, lead + below, "└─ " if last else "├─ ", "   " if last else "│  ")

    for first in children.get("", []):
        add(first, "", "", "")
    return lines


def _line(branch: "Branch") -> str:
    from crushpy.core.messages import counted
    from crushpy.security.sanitize import one_line

    session, boundary = branch.session, branch.boundary
    words = [session.id, _ago(session.updated_at), counted(session.message_count, "message")]
    if boundary is None or boundary.trigger == "fork":
        words.append(one_line(session.title))
    else:
        words.append(f"{boundary.trigger}: {boundary.tokens_before:,} -> {boundary.tokens_after:,} tokens")
        total = sum(counts[0] for counts in boundary.coverage.values())
        carried = sum(counts[2] for counts in boundary.coverage.values())
        if total:
            words.append(f"{carried}/{total} facts carried")
        if boundary.moment:
            words.append(f"at {boundary.moment!r}")
        if boundary.prepared:
            words.append("prepared")
        if boundary.undone_at is not None:
            words.append("undone")
    if session.kind in ("fork", "task"):
        words.append("branch" if session.kind == "fork" else "task")
    if branch.tip:
        words.append("<- tip")
    return "  ".join(words)


async def _search(
    query: str, session: str, *, everywhere: bool, limit: int, wait: bool, as_json: bool
) -> None:
    from crushpy.core.errors import UsageError
    from crushpy.core.messages import counted

    if not query.replace('"', "").strip():
        raise UsageError("there is nothing to search for", 'Give a word or a "phrase in quotes".')
    async with open_browser() as browser:
        within = (await find_session(browser, session)).id if session else None
        cwd = None if everywhere or within else str(working_folder())
        each = None if as_json else HITS_EACH
        if wait:
            await _whole_index(browser)
        found = await browser.search(query, cwd, within=within, conversations=limit, each=each)
        left = 0 if within else await browser.unindexed()
    if left:
        print(
            f"{counted(left, 'message')} could not be searched yet: the index grows while crushpy is used. "
            "--wait takes them in first.",
            file=sys.stderr,
        )
    if as_json:
        import msgspec

        print_json([msgspec.to_builtins(hit) for group in found for hit in group.hits])
        return
    if not found:
        where = "" if everywhere or within else " in this folder; --all looks everywhere"
        print(f"Nothing found{where}.", file=sys.stderr)
        raise typer.Exit(1)
    print_text("\n".join(map(_found, found)))


async def _whole_index(browser: "SessionBrowser") -> None:
    """Takes all messages in; says on a terminal how far it is."""
    left = total = await browser.unindexed()
    shown = sys.stderr.isatty()
    while await browser.tidy():
        left = await browser.unindexed()
        if shown:
            print(f"\rIndexing: {total - left:,} of {total:,}", end="", file=sys.stderr, flush=True)
    if shown and total:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _found(group: "SearchGroup") -> str:
    """One conversation: its title once, then the places, each with the session to jump to."""
    from crushpy.core.messages import counted
    from crushpy.security.sanitize import one_line

    lines = [f"{group.root_id}  {one_line(group.title)}"]
    for hit in group.hits:
        lines.append(f"  {hit.session_id}  {hit.role} {hit.message_id}, {_ago(hit.created_at)}")
        lines.append(f"    {one_line(hit.snippet)}")
    if group.more:
        lines.append(f"  and {counted(group.more, 'more place')}")
    return "\n".join(lines) + "\n"


def _ago(moment: float) -> str:
    from crushpy.engine.session.export import age

    since = age(time.time() - moment)
    return since if since == "now" else f"{since} ago"


async def _undo(name: str) -> None:
    async with open_browser() as browser:
        info = await find_session(browser, name)
        parent = await browser.undo(info.id)
    print(f"Undone: {parent.id} goes on where it was. {info.id} stays as a branch; files were not touched.")
    print(f"  crushpy run --session {parent.id} ...   goes on there")
