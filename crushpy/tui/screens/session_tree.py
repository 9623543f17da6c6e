"""The session tree of a conversation: its sessions and what each boundary carried over."""

import time
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from typing import TYPE_CHECKING

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, ScrollableContainer
from textual.content import Content
from textual.widgets import Static

from crushpy.context.coverage import carried_words, fact_words, tokens_words
from crushpy.core import messages
from crushpy.core.boundary import BRANCH, KEEPS_CONTEXT, RETURN, of_this_boundary
from crushpy.core.errors import CrushpyError
from crushpy.engine.session.browser import Preview, SessionBrowser
from crushpy.engine.session.export import age
from crushpy.engine.session.tree import TreeRow, draw_guides
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.items import BoundaryItem, NoticeItem, ReplyItem, ToolItem, TranscriptItem
from crushpy.tui.notify import tell
from crushpy.tui.screens.overlay import OverlayScreen, PanelScreen, in_worker
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.transcript.widget import Transcript
from crushpy.tui.transcript_presenter import stored_items
from crushpy.tui.widgets.row_list import RowList

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from crushpy.engine.compaction.replay import Replay

    ReplaySession = Callable[[str], Awaitable[list[Replay]]]


UNDO = "undo:"
ON_A_ROW = ("read", "go_on", "fork", "undo", "mark", "compare", "replay", "fold")
"""Actions that need a session at the cursor."""


def preview_items(preview: Preview, note: str = "") -> Iterator[TranscriptItem]:
    """A stored session at a glance: its boundary, its summary, its first and last messages."""
    session, boundary = preview.session, preview.boundary
    about = (
        f"{session.id}  {session.model}  {session.message_count} msg  {age(time.time() - session.created_at)}"
    )
    ended = f"  ended: {session.end_reason}" if session.ended_at is not None else ""
    yield NoticeItem(f"{one_line(session.title) or 'untitled'}\n{one_line(about + ended)}")
    if note:
        yield NoticeItem(note, "warning")
    if boundary is not None and boundary.trigger == BRANCH:
        yield NoticeItem(f"Branch: {one_line(boundary.moment)}")
    elif boundary is not None:
        undone, reported = boundary.undone_at is not None, boundary.reported_after
        yield BoundaryItem(boundary, undone=undone, reported=reported, offers=())
        if words := fact_words(boundary.facts):
            yield NoticeItem(f"Facts carried: {words}")
    if preview.seed is not None:
        yield ReplyItem(f"# Summary\n\n{preview.seed.summary or '(none: evidence only)'}")
    yield from _messages(preview.first)
    if preview.left_out:
        yield NoticeItem(f"… {preview.left_out} more …")
    yield from _messages(preview.last)


def _messages(shown: Sequence[messages.Message]) -> Iterator[TranscriptItem]:
    for item in stored_items(shown):
        cut_off = isinstance(item, ToolItem) and item.state == "interrupted" and not item.output
        yield msgspec.structs.replace(item, state="waiting") if cut_off else item  # its result is left out


def _heading(text: str) -> Content:
    return Content.styled(text, "bold $accent")


def _muted(text: str) -> Content:
    return Content.styled(text, "$text-muted")


def _diff(left: str, right: str) -> Content:
    """Every line of both texts; those of the left one alone are marked -, those of the right one alone +."""
    old, new = clean(left).splitlines(), clean(right).splitlines()
    _, _, _, *changed = [*unified_diff(old, new, n=len(old), lineterm="")] or ["", "", ""]
    styles, shown = {"-": "$error", "+": "$success"}, changed or [f" {line}" for line in old]
    lines = [Content.styled(f"{line[0]} {line[1:]}", styles.get(line[0], "")) for line in shown]
    return Content("\n").join(lines if changed else [_muted("Both are the same.\n"), *lines])


class CompareScreen(PanelScreen):
    """The summaries of two sessions, and their evidence."""

    def __init__(self, names: tuple[str, str], seeds: tuple[messages.Seed, messages.Seed]) -> None:
        left, right = seeds
        summaries = _heading("Summaries"), _diff(left.summary, right.summary)
        evidence = _heading("Evidence"), _diff(left.evidence, right.evidence)
        both = Content("\n").join([*summaries, Content(""), *evidence])
        super().__init__(" ↔ ".join(map(one_line, names)), Static(both))


class SessionPreview(Transcript, inherit_bindings=False):
    """Only scrolls: its items cannot be acted on here."""

    BINDINGS = ScrollableContainer.BINDINGS


class SessionTreeScreen(OverlayScreen[str | None]):
    """`session_id` is any session of the conversation; the cursor starts there. Returns the session to
    continue in, or `UNDO` and the id of the boundary that opened the current one."""

    DEFAULT_CSS = """
    SessionTreeScreen #both { height: 1fr; layout: horizontal; }
    SessionTreeScreen #preview-pane { width: 1fr; height: 1fr; padding: 0 1; border-left: solid $panel; }
    SessionTreeScreen.-narrow #both { layout: vertical; }
    SessionTreeScreen.-narrow #preview-pane { border-left: none; border-top: solid $panel; }
    SessionTreeScreen.-short #preview-pane, SessionTreeScreen.-tiny #preview-pane { display: none; }
    """
    BINDINGS = [
        Binding("enter", "read", "Open"),
        Binding("g", "go_on", "Continue here"),
        Binding("f", "fork", "Fork here"),
        Binding("u", "undo", "Undo compaction"),
        Binding("space", "mark", "Mark"),
        Binding("c", "compare", "Compare"),
        Binding("r", "replay", "Replay"),
        Binding("left,right", "fold", "Fold or unfold", show=False),
        Binding("escape", "close", "Close"),
    ]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
    heading = "Session tree"

    def __init__(self, library: SessionBrowser, session_id: str, replay: "ReplaySession") -> None:
        """`replay` walks the conversation up to a session under other settings."""
        super().__init__()
        self._library = library
        self._replay = replay
        self._here = session_id
        self._sessions: dict[str, TreeRow] = {}
        self._guides: dict[str, str] = {}
        """The lines that lead to each session, from top to bottom."""
        self._folded: set[str] = set()
        """Sessions below which none is shown."""
        self._shown: list[TreeRow] = []
        self._marked = ""
        """The session to compare with another."""

    def compose_body(self) -> ComposeResult:
        with Container(id="both"):
            yield RowList()
            with Container(id="preview-pane"):
                yield SessionPreview()

    # --- the tree ----------------------------------------------------------------------------------------

    @in_worker("tree")
    async def on_mount(self) -> None:
        try:
            rows = await self._library.tree(self._here)
        except CrushpyError as error:
            empty = f"Nothing of this conversation is stored yet ({error.message})"
            self.set_heading(self.heading, empty)
            self.query_one(SessionPreview).add(NoticeItem(empty))
            return
        self._sessions = {row.session.id: row for row in rows}
        self._guides = draw_guides(rows)
        title = one_line(rows[0].session.title) if rows else ""
        count = messages.counted(len(rows), "session")
        self.set_heading(f"{self.heading}  {title}", count)
        self._show_rows(self._here)

    def _show_rows(self, current: str) -> None:
        """Shows what is not below a folded session, with the cursor at `current`."""
        left_out = set(self._folded)
        self._shown = []
        for session_id in self._guides:
            if self._sessions[session_id].under in left_out:
                left_out.add(session_id)
            else:
                self._shown.append(self._sessions[session_id])
        at = next((number for number, row in enumerate(self._shown) if row.session.id == current), 0)
        self.query_one(RowList).show(
            len(self._shown), lambda number, width: self._label(self._shown[number], width), at
        )

    def _label(self, row: TreeRow, width: int) -> Content:
        session, boundary = row.session, row.boundary
        mark = ("◆ " if session.id == self._marked else "") + ("● " if session.id == self._here else "")
        words: list[str] = []
        long: list[str] = []
        """What is left out first in a narrow list: the details beside it have that."""
        match row.relation:
            case "task":
                words.append(f"task: {one_line(session.title)[:40]}")
            case "branch" | "fork" | "undone":
                after = "after" if row.relation == "undone" else "of"
                words.append(f"{row.relation} {after} session {self._number(session.parent_id)}")
            case _:
                words.append(f"session {session.generation + 1}")
        if boundary is not None and boundary.trigger not in KEEPS_CONTEXT:
            tokens = tokens_words(boundary, boundary.reported_after, messages.short_count)
            carried = carried_words(of_this_boundary(boundary.facts), boundary.lineage)
            words += [f"{boundary.trigger} {tokens}".strip(), carried.partition(";")[0]]
            long = [words[-1], words[-2]]
        elif boundary is not None:
            words += [one_line(boundary.moment)[:40], "returned" if session.end_reason == RETURN else ""]
            long = [words[-2]]
        words += [f"{session.message_count} msg", age(time.time() - session.updated_at)]
        words[1:1] = ["here"] if session.id == self._here else []
        words[1:1] = ["tip"] if row.tip else []
        style = "bold" if row.tip or session.id == self._here else ""
        folds = any(other.under == session.id for other in self._sessions.values())
        fold = ("▶ " if session.id in self._folded else "▼ ") if folds else ""
        while long and (len(self._guides[session.id]) + len(fold + mark + " · ".join(words))) > width:
            words.remove(long.pop(0))
        line = f"{fold}{mark}{' · '.join(filter(None, words))}"
        return Content.assemble(self._guides[session.id], (line, style))

    def _number(self, session_id: str | None) -> str:
        row = self._sessions.get(session_id or "")
        return str(row.session.generation + 1) if row else "?"

    @on(RowList.Highlighted)
    def _moved(self) -> None:
        if self._shown:
            self.confirming = ""
            self._preview(self._current)
            self.refresh_bindings()

    @in_worker("preview")
    async def _preview(self, row: TreeRow) -> None:
        tip, note = self._tip_of(row).session, ""
        if tip.id != row.session.id:
            note = f"Continued in session {tip.generation + 1}: g continues there, f forks from here"
        pane = self.query_one(SessionPreview)
        pane.set_items([*preview_items(await self._library.preview(row.session.id), note)])
        self.call_after_refresh(pane.go_to, 0)

    def _tip_of(self, row: TreeRow) -> TreeRow:
        """The last session that continues this one."""
        rows = self._sessions.values()
        following = {later.session.parent_id: later for later in rows if later.relation == "continues"}
        for _ in self._sessions:  # a damaged record may be a circle
            row = following.get(row.session.id, row)
        return row

    @property
    def _current(self) -> TreeRow:
        """The row at the cursor: without one the actions are disabled."""
        return self._shown[self.query_one(RowList).highlighted]

    # --- actions -----------------------------------------------------------------------------------------

    @on(RowList.Taken)
    def action_read(self) -> None:
        from crushpy.tui.screens.session_reader import SessionReaderScreen

        reader = SessionReaderScreen(self._library, self._current.session.id)
        app_of(self).push_screen(reader, self.dismiss_if_chosen)

    def action_go_on(self) -> None:
        tip = self._tip_of(self._current).session
        self.dismiss(None if tip.id == self._here else tip.id)

    @in_worker("change")
    async def action_fork(self) -> None:
        self.dismiss((await self._library.fork(self._current.session.id)).id)

    @in_worker("change")
    async def action_undo(self) -> None:
        """Warns once; the second press undoes."""
        session, boundary = self._current.session, self._current.boundary
        assert boundary is not None
        if session.end_reason == RETURN:
            what, boundary_id, then = "the return of this branch", "", "it continues where it ended"
        else:
            what = "this branch" if boundary.trigger == BRANCH else "this compaction"
            parent = self._number(session.parent_id)
            then = f"session {parent} continues where it ended, this one stays, marked undone"
            boundary_id = boundary.id
        if not self.confirm(session.id, f"Press u again to undo {what}: {then}; files are not touched."):
            return
        if session.id == self._here:
            self.dismiss(UNDO + boundary_id)
        else:
            self.dismiss((await self._library.undo_compaction(session.id, boundary_id)).id)

    @in_worker("change")
    async def action_replay(self) -> None:
        from crushpy.tui.screens.inspector import window_chart

        found = await self._replay(self._current.session.id)
        width = self.size.width - 6
        blocks: list[Content] = []
        for replayed in found:
            cost = f", ${replayed.usage.cost:.2f}" if replayed.usage.cost else ""
            many = messages.counted(len(replayed.boundaries), "compaction")
            blocks += [
                _heading(f"{replayed.label}: {many}{cost}"),
                window_chart(replayed.requests, replayed.window, width, 6),
            ]
        unknown = dict.fromkeys(text for replayed in found for text in replayed.unknown)
        blocks += [_heading("A replay cannot know"), *map(_muted, unknown)]
        app_of(self).push_screen(PanelScreen("Replay", Static(Content("\n").join(blocks))))

    def action_mark(self) -> None:
        """Marks a session to compare, instead of another, or no longer."""
        here = self._current.session.id
        self._marked = "" if here == self._marked else here
        self.query_one(RowList).refresh()

    def action_fold(self) -> None:
        here = self._current.session.id
        self._folded ^= {here}
        self._show_rows(here)

    @in_worker("change")
    async def action_compare(self) -> None:
        """The marked session, and the one at the cursor."""
        marked, here = self._marked, self._current.session.id
        if marked in ("", here):
            tell(self, "Mark a session with the space bar first, then press c at another.")
            return
        seeds = await self._library.seed(marked), await self._library.seed(here)
        names = f"session {self._number(marked)} ({marked})", f"session {self._number(here)} ({here})"
        app_of(self).push_screen(CompareScreen(names, seeds))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action not in ON_A_ROW or not self._shown:
            return action not in ON_A_ROW
        row = self._current
        if action == "undo":
            boundary = row.boundary
            return boundary is not None and boundary.trigger != "fork" and boundary.undone_at is None
        return action not in ("go_on", "fork") or row.relation != "task"
