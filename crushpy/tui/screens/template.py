"""Edit Summary Template: what a summary is made of, checked as it is typed, tried on the current session."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static, TextArea

from crushpy.core.errors import CrushpyError
from crushpy.core.templates import NAMES, TemplateProblem, Templates
from crushpy.engine.compaction.draft import Rehearsal
from crushpy.engine.compaction.summarizer import Postponed
from crushpy.engine.template_editor import OwnTemplate
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.notify import tell
from crushpy.tui.screens.closing import ClosesOnce
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.fields import AreaField
from crushpy.tui.widgets.key_bar import KeyBar

PAUSE = 0.2
"""Seconds after the last key until the text is checked."""

Try = Callable[[str], Awaitable[Rehearsal | None]]


class TemplateScreen(ClosesOnce[bool]):
    """Returns whether the user's template was changed. `preview` says what a text would carry over."""

    DEFAULT_CSS = """
    TemplateScreen .title { height: auto; max-height: 2; padding: 0 1; background: $panel; text-style: bold; }
    TemplateScreen #verdict { height: auto; max-height: 3; padding: 0 1; }
    TemplateScreen #outcome { display: none; height: 1fr; padding: 0 1; border-top: solid $panel; }
    TemplateScreen #outcome Static { height: auto; }
    TemplateScreen.-tried #outcome { display: block; }
    TemplateScreen.-short.-tried AreaField { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "save", "Save", priority=True),
        Binding("f5", "preview", "Preview"),
        Binding("tab", "read", "Read it"),
        Binding("f8", "reset", "Shipped text"),
        Binding("f4", "outside", "$EDITOR"),
        Binding("escape", "close", "Close"),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (18, "-tall")]
    AUTO_FOCUS = "AreaField"

    def __init__(
        self, templates: Templates, preview: Try | None = None, *, folder: Path | None = None
    ) -> None:
        """`folder` holds the user's templates; None: where crushpy keeps them."""
        super().__init__()
        self._own = OwnTemplate(templates, folder=folder)
        self._preview = preview
        self._stored = ""
        self._layer = ""
        self._path = ""
        self._saved = False
        self._problem: TemplateProblem | None = None
        self._insisted = ""
        """What the next key would do all the same: save a broken text, or close and lose it."""

    def compose(self) -> ComposeResult:
        yield Static(Content("Summary template"), classes="title", id="heading")
        yield AreaField()
        yield Static(id="verdict")
        with VerticalScroll(id="outcome"):
            yield Static(id="tried")
        yield KeyBar()

    def on_mount(self) -> None:
        self.run_worker(self._load(), group="file", exclusive=True)

    @property
    def _area(self) -> AreaField:
        return self.query_one(AreaField)

    @property
    def _edited(self) -> bool:
        return self._area.text != self._stored

    # --- what is shown -----------------------------------------------------------------------------------

    async def _load(self) -> None:
        try:
            found = await asyncio.to_thread(self._own.in_force)
        except CrushpyError as error:
            self._say(Content.styled(str(error), "$error"))
            return
        self._layer, self._path = found.layer, found.path
        self._stored = clean(found.text)
        self._area.show(found.text)
        self._say_where()

    def _say_where(self) -> None:
        whose = {"shipped": "as shipped", "user": "yours", "project": "this project's"}
        edited = "not saved  " if self._edited else ""
        where = "" if self._layer == "shipped" else one_line(self._path)  # not a file to be edited
        self.query_one("#heading", Static).update(
            Content.assemble(
                "Summary template  ",
                (edited, "$warning"),
                (f"{whose.get(self._layer, self._layer)}  {where}", "$text-muted"),
            )
        )

    def _say(self, text: Content) -> None:
        self.query_one("#verdict", Static).update(text)

    @on(TextArea.Changed)
    def _changed(self) -> None:
        self._insisted = ""
        self._say_where()
        self.run_worker(self._check(), group="check", exclusive=True)

    async def _check(self) -> None:
        await asyncio.sleep(PAUSE)
        await self._check_now()

    async def _check_now(self) -> None:
        """Says line, name and reason where the text cannot be used."""
        self._problem = await asyncio.to_thread(self._own.check, self._area.text)
        if self._problem is not None:
            self._say(Content.styled(f"✗ {clean(str(self._problem))}", "$error"))
            return
        names = ", ".join(NAMES[self._own.name])
        note = f"✓ Names it may use: {names}."
        if self._layer == "project":
            note += " This project's own template is in force here; what you save holds elsewhere."
        self._say(Content.styled(note, "$text-muted"))

    # --- what the user does ------------------------------------------------------------------------------

    def action_save(self) -> None:
        self.run_worker(self._save(), group="file", exclusive=True)

    async def _save(self) -> None:
        if not self._edited:
            tell(self, "Nothing was changed, so nothing is saved.")
            return
        await self._check_now()
        if self._problem is not None and self._insisted != "save":
            self._insisted = "save"
            tell(
                self,
                "It cannot be used as it is. Ctrl+S again saves it all the same; meanwhile another is used.",
                "warning",
            )
            return
        text = self._area.text
        try:
            await asyncio.to_thread(self._own.save, text)
        except CrushpyError as error:
            tell(self, str(error), "error")
            return
        self._insisted = ""
        self._saved = True
        self._stored = text
        if self._layer != "project":
            self._layer, self._path = "user", str(self._own.file)
        self._say_where()
        tell(self, f"Saved as {self._own.file}. It holds from the next fresh start on.")

    def action_reset(self) -> None:
        self.run_worker(self._reset(), group="file", exclusive=True)

    async def _reset(self) -> None:
        """Back to the shipped text at once; the user's file is kept beside it."""
        if self._insisted != "reset":
            self._insisted = "reset"
            tell(self, "F8 again brings the shipped text back; yours is kept as a .bak file.")
            return
        try:
            kept = await asyncio.to_thread(self._own.reset)
        except CrushpyError as error:
            tell(self, str(error), "error")
            return
        self._saved = self._saved or kept is not None
        self._insisted = ""
        await self._load()
        back = (
            "This project's own is in force." if self._layer == "project" else "The shipped one is in force."
        )
        where = f" Yours is kept as {kept}." if kept else ""
        tell(self, back + where)

    def action_outside(self) -> None:
        self.run_worker(self._outside(), group="file", exclusive=True)

    async def _outside(self) -> None:
        from crushpy.tui.widgets.external_editor import edit_outside

        try:
            text = await edit_outside(app_of(self), self._area.text)
        except CrushpyError as error:
            tell(self, str(error), "error")
            return
        self._area.show(text)

    def action_preview(self) -> None:
        if self.has_class("-tried"):
            self.remove_class("-tried")
            self._area.focus()
            self.refresh_bindings()
        elif self._preview is not None:
            self.run_worker(self._try(self._preview), group="preview", exclusive=True)

    async def _try(self, preview: Try) -> None:
        await self._check_now()
        if self._problem is not None:
            tell(self, "Mend it first: the reason stands below the text.", "warning")
            return
        self.add_class("-tried")
        if self.has_class("-short"):  # where it hides the text
            self.call_after_refresh(self.action_read)
        self.refresh_bindings()
        shown = self.query_one("#tried", Static)
        shown.update(Content.styled("Writing a summary with it …", "$text-muted"))
        try:
            outcome = await preview(self._area.text)
        except (CrushpyError, Postponed) as error:
            shown.update(Content.styled(clean(str(error)), "$error"))
            return
        shown.update(_outcome(outcome))

    def action_read(self) -> None:
        """To the preview, where the arrows and pages scroll."""
        self.query_one("#outcome").focus()

    def on_key(self, event: events.Key) -> None:
        """Letters typed while the preview has the focus belong to the text."""
        if not (self.query_one("#outcome").has_focus and event.character and event.is_printable):
            return
        event.stop()
        if self.has_class("-short"):
            self.action_preview()
        self._area.focus()
        self._area.insert(event.character)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "preview":
                return self._preview is not None
            case "read":
                return self.has_class("-tried") and self._area.has_focus
            case _:
                return True

    def action_close(self) -> None:
        if self.has_class("-tried"):
            self.action_preview()
        elif self._edited and self._insisted != "close":
            self._insisted = "close"
            tell(self, "It is not saved: Ctrl+S saves it, Esc again leaves it.")
        else:
            self.dismiss(self._saved)


def _outcome(outcome: Rehearsal | None) -> Content:
    """What the text would carry over from the current session: size, coverage, words."""
    if outcome is None:
        return Content("There is nothing to leave behind yet: the session is too short for a fresh start.")
    facts = ", ".join(
        f"{kind} {carried}/{total} ({prose} in prose)"
        for kind, (total, prose, carried) in outcome.coverage.items()
        if total
    )
    lines = [
        Content.styled("Nothing was changed. A fresh start now would give:", "bold"),
        Content(
            f"{outcome.tokens_before:,} → {outcome.tokens_after:,} tokens; {outcome.messages} messages left "
            f"behind, {outcome.tail} carried as they are; ${outcome.cost:.4f}"
        ),
    ]
    if outcome.share is not None:
        prose = (
            f" ({outcome.prose_share:.0%} by the summary alone)" if outcome.prose_share is not None else ""
        )
        lines.append(Content(f"coverage {outcome.share:.0%}{prose}: {facts}"))
    if outcome.problem:
        lines.append(Content.styled(one_line(outcome.problem), "$warning"))
    lines += [
        Content(""),
        Content.styled("Summary", "bold $accent"),
        Content(clean(outcome.summary) or "(none)"),
    ]
    lines += [Content(""), Content.styled("All that would be carried over", "bold $accent")]
    return Content("\n").join([*lines, Content(clean(outcome.text))])
