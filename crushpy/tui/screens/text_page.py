"""What the screens that only show a text share: a title, the text to scroll, and a key that closes."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from crushpy.tui.screens.closing import ClosesOnce
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.key_bar import KeyBar


class TextPage(ClosesOnce[None]):
    """A screen says what it is called, and its text for a width."""

    DEFAULT_CSS = """
    TextPage .title { height: 1; padding: 0 1; background: $panel; text-style: bold; }
    TextPage VerticalScroll { height: 1fr; padding: 0 1; }
    TextPage VerticalScroll Static { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "Close")]
    AUTO_FOCUS = "VerticalScroll"

    heading = ""

    def text(self, width: int) -> Content:
        """What there is to read."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield Static(Content(self.heading), classes="title")
        with VerticalScroll():
            yield Static(id="text")
        yield KeyBar()

    def on_resize(self) -> None:
        self.query_one("#text", Static).update(self.text(app_of(self).size.width - 4))
