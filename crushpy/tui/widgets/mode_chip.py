"""The mode, as a coloured chip at the prompt's left, with the key that switches it."""

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from crushpy.core.access import Mode
from crushpy.tui.textual_adapter import app_of

COLOURS: dict[str, str] = {
    "ask": "$primary",
    "edits": "$warning",
    "plan": "$secondary",
    "yolo": "$error",
}
KEY_COLUMNS, KEY_ROWS = 60, 20
"""In a smaller terminal the key is not shown."""


class ModeChip(Widget):
    """A click switches the mode."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "ModeChip { width: auto; height: auto; padding: 0 1; color: $text-muted; }"

    mode: reactive[Mode] = reactive("ask", layout=True)
    yolo: reactive[bool] = reactive(False, layout=True)
    key: reactive[str] = reactive("shift+tab", layout=True)

    def render(self) -> Content:
        word = "yolo" if self.yolo and self.mode != "plan" else self.mode
        chip = Content.styled(f" {word} ", f"bold $background on {COLOURS[word]}")
        size = app_of(self).size
        if size.width < KEY_COLUMNS or size.height < KEY_ROWS:
            return chip
        return Content("\n").join([chip, Content("+".join(map(str.capitalize, self.key.split("+"))))])

    def on_click(self) -> None:
        app_of(self).simulate_key(self.key)
