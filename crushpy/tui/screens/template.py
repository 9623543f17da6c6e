"""The editor of the summary template: checked while typing, previewed on the current session."""

import asyncio
from collections.abc import Awaitable, Callable

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Static, TextArea

from crushpy.core.errors import CrushpyError
from crushpy.core.templates import NAMES, TemplateProblem, Templates
from crushpy.engine.compaction.draft import Rehearsal
from crushpy.engine.compaction.summarizer import Postponed
from crushpy.engine.template_editor import OwnTemplate
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.notify import tell
from crushpy.tui.screens.overlay import EditingScreen, PanelScreen, in_worker, with_headings
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.fields import AreaField

CHECK_DEBOUNCE_S = 0.2
"""Delay after the last key until the text is checked."""

Preview = Callable[[str], Awaitable[Rehearsal | None]]


class TemplateScreen(EditingScreen[None]):
    """`preview` shows what a text would carry over."""

    DEFAULT_CSS = """
    TemplateScreen #verdict { height: auto; max-height: 3; padding: 0 1; }
    """
    BINDINGS = [
        Binding("ctrl+s", "save", "Save", priority=True),
        Binding("f5", "preview", "Preview"),
        Binding("f8", "reset", "Restore default"),
        Binding("f4", "outside", "$EDITOR"),
        Binding("escape", "close", "Close"),
    ]
    heading = "Summary template"
    unsaved = "The template is not saved. Press Ctrl+S to save it, {}."

    def __init__(self, templates: Templates, preview: Preview) -> None:
        super().__init__()
        self._own = OwnTemplate(templates)
        self._preview = preview
        self._layer = ""
        self._path = ""
        self._problem: TemplateProblem | None = None

    def compose_body(self) -> ComposeResult:
        yield AreaField()
        yield Static(id="verdict")

    @in_worker("file")
    async def on_mount(self) -> None:
        await self._load()

    async def _load(self) -> None:
        try:
            found = await asyncio.to_thread(self._own.in_force)
        except CrushpyError as error:
            self._say(Content.styled(str(error), "$error"))
            return
        self._layer, self._path = found.layer, found.path
        self.stored = clean(found.text)
        self.area.show(found.text)
        self._say_where()

    def _say_where(self) -> None:
        whose = {"shipped": "default", "user": "yours", "project": "this project's"}
        edited = "not saved  " if self.edited else ""
        where = "" if self._layer == "shipped" else one_line(self._path)  # not a file to edit
        self.set_heading(self.heading, f"{edited}{whose.get(self._layer, self._layer)}  {where}")

    def _say(self, text: Content) -> None:
        self.query_one("#verdict", Static).update(text)

    @on(TextArea.Changed)
    def _changed(self) -> None:
        self.confirming = ""
        self._say_where()
        self._check()

    @in_worker("check")
    async def _check(self) -> None:
        await asyncio.sleep(CHECK_DEBOUNCE_S)
        await self._check_now()

    async def _check_now(self) -> None:
        """Shows line, name and reason if the text is invalid."""
        self._problem = await asyncio.to_thread(self._own.check, self.area.text)
        if self._problem is not None:
            self._say(Content.styled(f"✗ {clean(str(self._problem))}", "$error"))
            return
        names = ", ".join(NAMES[self._own.name])
        note = f"✓ Available names: {names}."
        if self._layer == "project":
            note += " This project's own template is used here; yours is used elsewhere."
        self._say(Content.styled(note, "$text-muted"))

    @in_worker("file")
    async def action_save(self) -> None:
        if not self.edited:
            tell(self, "There are no changes to save.")
            return
        await self._check_now()
        warning = "The template is invalid. Press Ctrl+S again to save it; it is not used until it is fixed."
        if self._problem is not None and not self.confirm("save", warning):
            return
        text = self.area.text
        await asyncio.to_thread(self._own.save, text)
        self.confirming = ""
        self.stored = text
        if self._layer != "project":
            self._layer, self._path = "user", str(self._own.file)
        self._say_where()
        tell(self, f"Saved as {self._own.file}. The next compaction uses it.")

    @in_worker("file")
    async def action_reset(self) -> None:
        """Restores the default text; the user's file is kept as a backup beside it."""
        warning = "Press F8 again to restore the default text; yours is kept as a .bak file."
        if not self.confirm("reset", warning):
            return
        kept = await asyncio.to_thread(self._own.reset)
        self.confirming = ""
        await self._load()
        used = "This project's own template" if self._layer == "project" else "The default template"
        tell(self, f"{used} is used now." + (f" Yours is kept as {kept}." if kept else ""))

    @in_worker("file")
    async def action_outside(self) -> None:
        from crushpy.tui.widgets.external_editor import edit_outside

        self.area.show(await edit_outside(app_of(self), self.area.text))

    @in_worker("preview")
    async def action_preview(self) -> None:
        """Shows in a panel what compaction with this text would carry over."""
        await self._check_now()
        if self._problem is not None:
            tell(self, "Fix the template first: the reason is shown below it.", "warning")
            return
        shown = Static(Content.styled("Writing a summary …", "$text-muted"))
        app_of(self).push_screen(PanelScreen("Preview", shown))
        try:
            shown.update(_outcome(await self._preview(self.area.text)))
        except (CrushpyError, Postponed) as error:
            shown.update(Content.styled(clean(str(error)), "$error"))

    def action_close(self) -> None:
        if self.may_lose_edits("Esc again to discard it"):
            self.dismiss(None)


def _outcome(outcome: Rehearsal | None) -> Content:
    """What compaction with this text would carry over from the current session."""
    if outcome is None:
        return Content("The session is too short to compact.")
    told = ["# Preview: nothing was changed. Compacting now would give:", *outcome.lines, ""]
    summary = ["# Summary", outcome.summary or "(none)", ""]
    return with_headings("\n".join([*told, *summary, "# Everything carried over", outcome.text]))
