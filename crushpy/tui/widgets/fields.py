"""Input fields without borders and blinking cursors; pasted text is sanitized first."""

from textual import events
from textual.binding import Binding
from textual.widgets import Input, TextArea

from crushpy.security.sanitize import clean, one_line


class LineField(Input):
    DEFAULT_CSS = """
    LineField, LineField:focus { height: 1; border: none; padding: 0 1; background: $surface; }
    """

    def __init__(self, value: str = "", placeholder: str = "") -> None:
        super().__init__(value, placeholder, select_on_focus=False)
        self.cursor_blink = False  # no timer while idle

    def on_paste(self, event: events.Paste) -> None:
        event.stop().prevent_default()
        self.insert_text_at_cursor(one_line(event.text))


class AreaField(TextArea):
    DEFAULT_CSS = "AreaField, AreaField:focus { height: 1fr; border: none; padding: 0 1; }"

    def __init__(self, text: str = "") -> None:
        super().__init__(clean(text), soft_wrap=True, highlight_cursor_line=False)
        self.cursor_blink = False

    def on_paste(self, event: events.Paste) -> None:
        event.stop().prevent_default()
        self.insert(clean(event.text))

    def show(self, text: str) -> None:
        """Replaces the text and clears the undo history."""
        self.load_text(clean(text))


class FindLine(LineField):
    DEFAULT_CSS = "FindLine, FindLine:focus { background: $panel; }"
    BINDINGS = [Binding("escape", "screen.end_find", "End", show=False)]

    def __init__(self) -> None:
        super().__init__(placeholder="Find in the transcript. Enter, then n for the next match. Esc ends.")
