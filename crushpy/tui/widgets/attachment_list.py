"""The images of the next prompt, a line for each, removed by Backspace or a click."""

from typing import NamedTuple

from textual import events
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from crushpy.core.messages import Image, short_count
from crushpy.security.sanitize import one_line
from crushpy.tui.widgets.fitting import window

MAX_ROWS = 4
REMOVE = " ✕"


class Attached(NamedTuple):
    image: Image
    tokens: int
    """Its estimated size in tokens."""

    def __str__(self) -> str:
        info = self.image.info
        pixels = f" {info.width}x{info.height}" if info.width else ""
        return f"[{one_line(info.name) or info.media_type}{pixels} · ~{short_count(self.tokens)} tokens]"


class AttachmentList(Widget):
    """Takes no space if it is empty; if there are too many, the newest are shown."""

    DEFAULT_CSS = """
    AttachmentList {
        height: auto; max-height: 5; display: none;
        border-left: thick $border-blurred; padding: 0 1; color: $text-muted;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    reading: reactive[int] = reactive(0)
    """How many images are still being read."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[Attached] = []

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(row.image for row in self._rows)

    def add(self, image: Image, tokens: int) -> None:
        self._rows.append(Attached(image, tokens))
        self._changed()

    def take(self) -> tuple[Image, ...]:
        """Removes and returns all images."""
        images = self.images
        if images:
            self._rows.clear()
            self._changed()
        return images

    def remove_last(self) -> None:
        if self._rows:
            self._rows.pop()
            self._changed()

    def _changed(self) -> None:
        self.display = bool(self._rows or self.reading)
        self.refresh(layout=True)

    watch_reading = _changed

    def render(self) -> Content:
        reading = ["[reading an image …]"] if self.reading else []
        return Content("\n".join([*map(self._label, self._shown), *reading]))

    @property
    def _shown(self) -> range:
        return window(len(self._rows), len(self._rows) - 1, MAX_ROWS)

    def _label(self, at: int) -> str:
        hint = " · Backspace in an empty prompt removes it" if at == len(self._rows) - 1 else ""
        more = f" · {self._shown.start} more" if at == self._shown.start and at else ""
        return f"{self._rows[at]}{REMOVE}{more}{hint}"

    def on_click(self, event: events.Click) -> None:
        event.stop()
        inside = event.get_content_offset(self)
        if inside is None or inside.y >= len(self._shown):
            return
        del self._rows[self._shown[inside.y]]
        self._changed()
