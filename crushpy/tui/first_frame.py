"""Saves the app's first frame, which `terminal/early_terminal.py` shows at the next start."""

import asyncio
from contextlib import suppress
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rich.segment import Segment
from textual.geometry import NULL_REGION, Region
from textual.strip import Strip
from textual.widget import Widget

from crushpy.core.paths import Paths
from crushpy.tui.terminal.early_terminal import PLACEHOLDER, frame_key
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.themes import filter_style

if TYPE_CHECKING:
    from crushpy.tui.screens.chat_host import ChatHost

MAX_FRAMES = 20
KNOWN_AT_START = ("folder", "branch", "model", "method")
"""Fields of the status bar that the next start shows as they were."""


class FirstFrame:
    """The picture of one start: drawn once the app is laid out, saved once a conversation is open."""

    def __init__(self, chat: "ChatHost", last: dict[str, Any]) -> None:
        """`last`: what was saved at an earlier start."""
        self._chat, self._last = chat, last
        known: dict[str, str] = last["status"] if isinstance(last.get("status"), dict) else {}
        self.status = {name: str(known[name]) for name in KNOWN_AT_START if name in known}
        given = {"model": chat.options.model, "method": chat.options.compaction}
        self.status |= {name: value for name, value in given.items() if value}
        self._frame: dict[str, Any] = {}
        self._bar = ""

    def draw(self) -> None:
        """Draws the app with an empty prompt."""
        chat, app = self._chat, app_of(self._chat)
        prompt, place = chat.prompt, chat.prompt.content_region
        if not place:  # there is no room for a prompt
            return
        text = filter_style(prompt, prompt.rich_style)
        hint = filter_style(prompt, prompt.get_component_rich_style("text-area--placeholder"))
        line = Strip([Segment(wrap(PLACEHOLDER, place.width)[0], hint)]).adjust_cell_length(place.width, text)
        widgets = (chat.transcript, chat.activity, chat.strip, chat.chip, prompt)
        drawn = [row for widget in widgets for row in self._rows(widget)]
        drawn.append(_at(place.x, place.y, line.render(app.console)))
        self._bar = "".join(self._rows(chat.bar))
        self._frame = {
            "place": [place.y + 1, place.x + 1, place.width],
            "style": Strip([Segment("\0", text)]).render(app.console).split("\0"),
            "drawn": "".join(drawn),
            "theme": app.theme,
        }

    def _rows(self, widget: Widget) -> list[str]:
        x, y, width, height = widget.region if widget.display else NULL_REGION
        lines = widget.render_lines(Region(0, 0, width, height))
        console = app_of(self._chat).console
        return [_at(x, y + row, line.render(console)) for row, line in enumerate(lines)]

    async def save(self, theme: str) -> None:
        """`theme`: the one that the user has chosen, if any."""
        from crushpy.security.private_files import update_stored

        app, state = app_of(self._chat), self._chat.bar.state
        status = {name: getattr(state, name) for name in KNOWN_AT_START}
        frame = self._frame if self._frame.get("theme") == app.theme else {}
        if frame and status == self.status:
            frame["drawn"] += self._bar
        frame = {**frame, "theme": theme, "status": status}
        key = frame_key(self._chat.options.cwd, app.size, self._chat.options.setting_flags().values())

        def replace(frames: dict[str, Any]) -> dict[str, Any]:
            others = [(name, frame) for name, frame in frames.items() if name != key]
            return dict([*others[1 - MAX_FRAMES :], (key, frame)])

        if not app.is_headless and frame != self._last:
            with suppress(OSError):
                await asyncio.to_thread(update_stored, Paths().first_frames, dict[str, Any], replace)


def _at(x: int, y: int, text: str) -> str:
    return f"\x1b[{y + 1};{x + 1}H{text}"
