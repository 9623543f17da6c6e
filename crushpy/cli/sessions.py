"""`crushpy sessions`: all commands but those in `session_context.py` and `session_import.py`."""

import shutil
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crushpy.cli import session_context, session_hindsight, session_import, session_replay
from crushpy.cli.command_helpers import (
    AsJson,
    DryRun,
    SessionId,
    Yes,
    add_group,
    argument,
    confirm,
    find_session,
    format_table,
    open_browser,
    option,
    print_either,
    print_json,
    print_lines,
    print_note,
    print_progress,
    print_text,
)
from crushpy.cli.workspace import working_folder
from crushpy.core.errors import UsageError
from crushpy.core.messages import counted, shortened
from crushpy.core.paths import Paths
from crushpy.security.sanitize import clean, one_line

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping, Sequence

    from pathspec import GitIgnoreSpec

    from crushpy.engine.rewind.rewinder import FileView, PlannedRestoration, Rewinder, RewindTarget
    from crushpy.engine.session.browser import SearchGroup, SessionBrowser
    from crushpy.engine.session.tree import TreeRow
    from crushpy.storage.records import ConversationEntry, SessionInfo, TasksDone


KeepSecrets = Annotated[bool, option("--no-redact", "Do not remove passwords, keys and tokens.")]

DEFAULT_LIMIT = 30


def register(app: typer.Typer) -> None:
    commands = {
        "list": list_sessions,
        "show": show_command,
        "export": export_command,
        "delete": delete_command,
        "tree": tree_command,
        "search": search_command,
        "undo-compaction": undo_command,
        "replay": session_replay.replay_command,
        "hindsight": session_hindsight.hindsight_command,
    }
    rewinding = {"changes": changes_command, "rewind": rewind_command}
    add_group(app, "sessions", commands | session_context.COMMANDS | session_import.COMMANDS | rewinding)


async def list_sessions(
    everywhere: Annotated[bool, option("--all", "All folders, not only this one.")] = False,
    limit: Annotated[
        int | None, option("--limit", "How many, newest first. [default: 30]", min=1, metavar="N")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the conversations of this folder, newest first."""
    cwd = None if everywhere else str(working_folder())
    async with open_browser() as browser:
        lists = await browser.store.tasks.list_unfinished()
        if as_json:
            from crushpy.engine.session.export import session_as_json

            print_json(
                [
                    session_as_json(info) | {"unfinished_tasks": lists.get(info.root_id)}
                    for info in await browser.store.sessions.list_tips(cwd, limit)
                ]
            )
            return
        shown = DEFAULT_LIMIT if limit is None else limit
        rows = await browser.store.sessions.list_conversations(cwd, shown + 1)
    if not rows:
        scope = f" of {one_line(cwd)} yet; `crushpy sessions list --all` shows the others" if cwd else " yet"
        print_note(f"There are no conversations{scope}.")
        return
    print_lines(_table(rows[:shown], lists, folders=everywhere))
    if len(rows) > shown:
        print_note("There are more; use `--limit N` to show N.")


async def show_command(
    session: SessionId, as_json: AsJson = False, keep_secrets: KeepSecrets = False
) -> None:
    """Print a session: its metadata, its messages, and a line per tool call. Secrets are redacted."""
    from crushpy.engine.compaction.judged_boundaries import judge_stored
    from crushpy.engine.session import export

    async with find_session(session) as (browser, info):
        messages = await browser.store.messages.load(info.id)
        boundary = await browser.store.boundaries.find_opening(info.id)
        states = await export.load_sent_states(browser.store, info.id)
        hindsight = (await judge_stored(browser.store, info.id)).get(info.id) if boundary else None
    if not keep_secrets:
        info, messages = export.redacted(info, messages)
    if as_json:
        full = {**export.session_as_json(info), "system": info.system, "boundary": boundary}
        print_json(full | {"hindsight": hindsight, "messages": export.messages_as_json(messages, states)})
    else:
        print_text(export.session_as_text(info, messages, states, hindsight.words if hindsight else ""))


async def export_command(
    session: SessionId,
    form: Annotated[Literal["markdown", "json", "html"], option("--format", "Output format.")] = "markdown",
    output: Annotated[Path | None, option("--output -o", "Write to this file.", metavar="FILE")] = None,
    force: Annotated[bool, option("--force", "Overwrite FILE if it exists.")] = False,
    keep_secrets: KeepSecrets = False,
    thinking: Annotated[bool, option("--thinking", "html: include what the model thought.")] = False,
    images: Annotated[bool, option("--images", "html: include images.")] = False,
    yes: Annotated[bool, option("--yes -y", "html: list what is redacted without asking.")] = False,
) -> None:
    """Write a session and those it continues in full; as html, its whole conversation as a page. Secrets are
    redacted."""
    from crushpy.engine.session.html_page import PageReport

    if form != "html" and (thinking or images or yes):
        raise UsageError("--thinking, --images and --yes are for pages", "Add --format html.")
    page = PageReport(thinking=thinking, images=images, keep_secrets=keep_secrets) if form == "html" else None

    async def approve() -> None:
        """Lists what a page does not contain: as a question on a terminal."""
        for line in page.lines if page is not None else ():
            print_note(one_line(line))
        if page is not None and not yes and sys.stdin.isatty() and sys.stderr.isatty():
            typer.confirm("Write the page?", abort=True, err=True)

    async with find_session(session) as (browser, info):
        if output is not None:
            with _explain_write_errors(output):
                count = await browser.export(
                    info.id,
                    output,
                    form,
                    keep_secrets=keep_secrets,
                    replace=force,
                    page=page,
                    approve=approve,
                )
            print(f"{counted(count, 'message')} {'is' if count == 1 else 'are'} in {output}")
            return
        exported = await browser.export_text(
            info.id, form, keep_secrets=keep_secrets, page=page, plain_ascii=sys.stdout.isatty()
        )
        await approve()
        print_text(exported.text)


async def delete_command(session: SessionId, yes: Yes = False) -> None:
    """Delete the whole conversation of a session. This cannot be undone."""
    async with find_session(session) as (browser, info):
        sessions = [row.session for row in await browser.tree(info.id)]
        title = one_line(info.title) or "untitled"
        count = counted(sum(entry.message_count for entry in sessions), "message")
        description = f'conversation {info.root_id} "{title}" ({counted(len(sessions), "session")}, {count})'
        confirm(f"Delete {description}?", f"deleting {description}", yes=yes)
        await browser.erase(info.root_id)
    print(f"Deleted {description}.")


def _table(
    conversations: "Sequence[ConversationEntry]", lists: "Mapping[str, TasksDone]", *, folders: bool
) -> list[str]:
    from crushpy.engine.session.export import age

    now = time.time()
    rows = [("ID", "AGE", "MODEL", "MESSAGES", *(("FOLDER",) if folders else ()), "TITLE")]
    for row in conversations:
        folder = (one_line(row.cwd),) if folders else ()
        start = (row.id, age(now - row.updated_at), one_line(row.model), str(row.messages))
        mark = f" [{row.imported}]" if row.imported else ""
        if unfinished := lists.get(row.root_id):
            mark += f" [{unfinished}]"
        rows.append((*start, *folder, (one_line(row.title) or "-") + mark))
    lines = format_table(rows)
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
        lines = [shortened(line, columns) for line in lines]
    return lines


@contextmanager
def _explain_write_errors(file: Path) -> "Generator[None]":
    if file.is_dir():
        raise UsageError(f"cannot write {file}: it is a folder", "Choose a file.")
    try:
        yield
    except FileExistsError as error:
        what = "is a link" if file.is_symlink() else "exists"
        raise UsageError(f"{file} {what}", "Choose another file, or overwrite it with --force.") from error
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}", "Choose another file.") from error


HITS_PER_CONVERSATION = 3


async def tree_command(session: SessionId, as_json: AsJson = False) -> None:
    """Draw the session tree of a conversation."""
    async with find_session(session) as (browser, info):
        tree = await browser.tree(info.id)
    from crushpy.engine.session.export import session_as_json
    from crushpy.engine.session.tree import draw_guides

    oldest_first = sorted(tree, key=lambda row: (row.session.created_at, row.session.generation))
    rows = [
        {**session_as_json(row.session), "boundary": row.boundary, "tip": row.tip} for row in oldest_first
    ]
    by_id = {row.session.id: row for row in tree}
    lines = [f"{guide}{_row_line(by_id[name])}" for name, guide in draw_guides(tree).items()]
    print_either(as_json, rows, lines)


async def search_command(
    query: Annotated[str, argument('Words to search for; "a phrase" in quotes.')],
    everywhere: Annotated[bool, option("--all", "In all folders, not only this one.")] = False,
    session: Annotated[
        str, option("--session -s", "Only in this session and those it continues.", metavar="ID")
    ] = "",
    limit: Annotated[int, option("--limit", "Maximum number of conversations.", min=1)] = 10,
    wait: Annotated[bool, option("--wait", "Index all messages first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search messages and tool calls, including those before a compaction."""
    if not query.replace('"', "").strip():
        raise UsageError("the query is empty", 'Give a word or a "phrase in quotes".')
    async with open_browser() as browser:
        within = (await browser.find(session, str(working_folder()))).id if session else None
        cwd = None if everywhere or within else str(working_folder())
        max_hits = None if as_json else HITS_PER_CONVERSATION
        if wait:
            await browser.index_all(lambda done, total: print_progress(f"Indexing: {done:,} of {total:,}"))
            print_progress("")
        found = await browser.search(query, cwd, within=within, conversations=limit, each=max_hits)
        pending = 0 if within else await browser.store.search.count_unindexed()
    if pending:
        later = "they are indexed while crushpy is used. Use --wait to index them first."
        print_note(f"{counted(pending, 'message')} could not be searched yet: {later}")
    if as_json:
        print_json([hit for group in found for hit in group.hits])
        return
    if not found:
        scope = "" if everywhere or within else " in this folder; use --all to search all folders"
        print_note(f"Nothing found{scope}.")
        raise typer.Exit(1)
    print_text("\n".join(map(_format_group, found)))


async def undo_command(session: SessionId) -> None:
    """Undo the compaction or new session that opened a session; its parent continues where it was."""
    from crushpy.context.edits import thoughts_left_behind

    async with find_session(session) as (browser, info):
        _, left = await browser.messages(info.id)
        parent = await browser.undo_compaction(info.id)
    print(f"Undone: {parent.id} continues where it was. What came after stays stored; no file was changed.")
    print(thoughts_left_behind(left))
    print(f"  crushpy run --session {parent.id} ...   continues it")


def _row_line(row: "TreeRow") -> str:
    from crushpy.context.coverage import carried_words, lineage_words, tokens_words
    from crushpy.core.boundary import KEEPS_CONTEXT, RETURN, of_this_boundary

    session, boundary = row.session, row.boundary
    words = [session.id, _format_age(session.updated_at), counted(session.message_count, "message")]
    if boundary is None or boundary.trigger in KEEPS_CONTEXT:
        words.append(one_line((boundary.moment if boundary else "") or session.title))
    else:
        tokens = tokens_words(boundary, boundary.reported_after).replace("→", "->")
        words.append(f"{boundary.trigger}: {tokens or 'unknown'} tokens")
        words.append(carried_words(of_this_boundary(boundary.facts)).partition(";")[0])
        words.append(f"since the root {since}" if (since := lineage_words(boundary)) else "")
        words.append(f"at {boundary.moment!r}" if boundary.moment else "")
        words.append("prepared" if boundary.prepared else "")
    words.append("" if row.relation in ("first", "continues") else row.relation)
    words.append("returned" if session.end_reason == RETURN else "")
    words.append("<- tip" if row.tip else "")
    return "  ".join(filter(None, words))


def _format_group(group: "SearchGroup") -> str:
    lines = [f"{group.root_id}  {one_line(group.title)}"]
    for hit in group.hits:
        state = f"  [{hit.state}]" if hit.state else ""
        lines.append(f"  {hit.session_id}  {hit.role} {hit.message_id}, {_format_age(hit.created_at)}{state}")
        lines.append(f"    {one_line(hit.snippet)}")
    if group.more:
        lines.append(f"  and {counted(group.more, 'more place')}")
    return "\n".join(lines) + "\n"


def _format_age(moment: float) -> str:
    from crushpy.engine.session.export import age

    since = age(time.time() - moment)
    return since if since == "now" else f"{since} ago"


# --- file changes, and going back to a message ---

NOT_COVERED = (
    "Not covered: changes by commands to ignored files, to .git, and outside of the folder they ran in."
)


def _names_of_executed_files() -> "GitIgnoreSpec":
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(Path(__file__).with_name("executed_files.txt").read_text().splitlines())


async def changes_command(
    session: SessionId,
    diff: Annotated[bool, option("--diff", "Include the diffs.")] = False,
    executable: Annotated[
        bool, option("--executable", "Only files that are executable or that common tools run.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print all file changes of a conversation. Secrets are redacted."""
    from crushpy.security.redact import redact

    async with _open_rewinder(session) as (_, rewinder, info):
        log, found = await rewinder.changes(info.id)
    if executable:
        executed = _names_of_executed_files()
        found = [
            (change, view)
            for change, view in found
            if (after := change.after) is not None
            and after.kind in ("file", "link")
            and (after.mode & 0o111 or executed.match_file(change.path.lower()))
        ]
    if as_json:
        rows: list[dict[str, Any]] = []
        for change, view in found:
            row = {name: getattr(view, name) for name in ("path", "action", "added", "removed", "note")}
            after = change.after.hash if change.after else ""
            row |= {"path": change.path, "before": change.before.hash, "after": after}
            rows.append(row | ({"diff": redact(view.unified)} if diff else {}))
        print_json(
            {"session": info.id, "conversation": info.root_id, "files": rows, "not_covered": NOT_COVERED}
        )
        return
    if not found:
        words = "All changes were undone." if log.changes else "No file was changed."
        words = "No changed file is executable or run by common tools." if executable else words
        print_note(words)
    for _, view in found:
        print_text(one_line(view.line) + "\n")
        if diff:
            _print_diff(view)
    if any(entry.source == "bash" for entry in log.changes):
        print_note(NOT_COVERED)


async def rewind_command(
    session: SessionId,
    to: Annotated[
        str,
        option("--to", "A message's id from `sessions show --json`, or a prefix of it.", metavar="MESSAGE"),
    ],
    files: Annotated[bool, option("--files", "Restore the files.")] = False,
    conversation: Annotated[bool, option("--conversation", "Continue in a fork that ends there.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Go back to a message: files, conversation, or both if neither is given.

    Going back to a prompt ends before it. Prints the id of the fork that continues the conversation.
    """
    if not files and not conversation:
        files = conversation = True
    async with _open_rewinder(session) as (browser, rewinder, info):
        target = await rewinder.target(info.id, to)
        if files and not dry_run:
            await browser.require_unused(info)
        planned = await rewinder.plan_rewind(info.id, target) if files else None
        text = _describe_rewind(target, planned, conversation=conversation)
        if dry_run:
            print_text(text)
            for view in planned.views if planned else ():
                _print_diff(view)
            return
        if not yes:
            print(text, file=sys.stderr, end="")
        confirm("Go back?", "this", yes=yes)
        if conversation:
            outcome = await rewinder.rewind(info, target, planned)
        else:
            assert planned is not None
            outcome = await rewinder.apply(info, planned)
            await rewinder.tell_agent(info, outcome)
    if outcome.restored:
        verb = "is" if len(outcome.restored) == 1 else "are"
        print_note(f"{counted(len(outcome.restored), 'file')} {verb} restored.")
    for conflict in outcome.conflicts:
        print_note(one_line(f"not restored: {conflict.path}: {conflict.reason}"))
    if outcome.session is not None:
        print(outcome.session.id)
    if outcome.conflicts:
        raise typer.Exit(1)


@asynccontextmanager
async def _open_rewinder(name: str) -> "AsyncGenerator[tuple[SessionBrowser, Rewinder, SessionInfo]]":
    """A session and its rewinder; an interrupted restoration is finished first."""
    from crushpy.engine.rewind.rewinder import Rewinder
    from crushpy.engine.rewind.undo_files import UndoFiles
    from crushpy.settings.layers import load

    async with find_session(name) as (browser, info):
        settings = load(Paths(), Path.cwd()).settings.undo
        rewinder = Rewinder(browser.store, UndoFiles(Paths().undo, Path(info.cwd), settings))
        for words in await rewinder.finish(info.root_id):
            print_note(f"crushpy: {words}")
        yield browser, rewinder, info


def _print_diff(view: "FileView") -> None:
    from crushpy.security.redact import redact

    if view.unified:
        print_text(f"\n{clean(redact(view.unified))}\n\n")


def _describe_rewind(
    target: "RewindTarget", planned: "PlannedRestoration | None", *, conversation: bool
) -> str:
    position = "before" if target.ends_before else "after"
    lines: list[str] = []
    if conversation:
        quote = one_line(target.message.text)[:60] or target.message.id
        lines.append(
            f"The conversation continues in a fork that ends {position} {target.message.role} {quote!r}."
        )
    if planned is not None:
        lines.append(
            f"Files to restore: {planned.title}." if planned.views else "No file has to be restored."
        )
        lines += [f"  {one_line(view.line)}" for view in planned.views]
    return "\n".join(lines) + "\n"
