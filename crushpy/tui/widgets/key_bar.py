"""The key bar: the keys that can be pressed now. A click on a key presses it."""

from collections.abc import Sequence
from typing import Any, cast

from textual.actions import parse
from textual.binding import Binding
from textual.content import Content
from textual.style import Style
from textual.widgets import Static

from crushpy.tui.textual_adapter import app_of, subscribe

_GAP = 2
LOW_ROWS = 12
"""In a terminal with fewer rows the keys take one line."""
_NAMES = {"escape": "Esc", "delete": "Del", "pageup": "PgUp", "pagedown": "PgDn", "slash": "/"}


def key_name(key: str) -> str:
    """A key as people write it: ctrl+s as Ctrl+S, f2 as F2, a letter as it is."""
    *held, last = key.split("+")
    last = last if len(last) == 1 and not held else _NAMES.get(last, last.capitalize())
    return "+".join([*(name.capitalize() for name in held), last])


def flow(labels: Sequence[Content], width: int) -> Content:
    """Labels in a row, on as many lines as needed; no label is broken."""
    lines: list[list[Content]] = [[]]
    room = width
    for label in labels:
        if lines[-1] and label.cell_length + _GAP > room:
            lines.append([])
            room = width
        room -= label.cell_length + (_GAP if lines[-1] else 0)
        lines[-1].append(label)
    return Content("\n").join(Content(" " * _GAP).join(line) for line in lines)


def clickable(label: Content, key: str) -> Content:
    """A click on it presses the key."""
    return label.stylize(Style.from_meta({"@click": f"app.simulate_key('{key}')"}))


class KeyBar(Static):
    """The keys of the screen, including those that an input line may handle, and of the focused widget."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    KeyBar {
        dock: bottom; height: auto; max-height: 4; padding: 0 1; color: $text-muted;
        link-style: none; link-color: $text-muted; link-background: transparent;
        link-style-hover: underline; link-color-hover: $footer-key-foreground;
        link-background-hover: transparent;
        &.-low { max-height: 1; }
    }
    """

    def on_mount(self) -> None:
        subscribe(self, cast(Any, self.screen).bindings_updated_signal, self._refresh_keys)
        self._refresh_keys()

    def on_resize(self) -> None:
        self.call_after_refresh(self._refresh_keys)  # its height depends on its width

    def _refresh_keys(self) -> None:
        if not self.is_attached:
            return
        size = app_of(self).size
        self.set_class(size.height < LOW_ROWS, "-low")
        self.update(flow(self._labels(), self.content_size.width or size.width - 4))

    def _labels(self) -> list[Content]:
        screen = self.screen
        shown = {binding.action: binding for binding in screen.BINDINGS if isinstance(binding, Binding)}
        focused = screen.focused
        for active in screen.active_bindings.values():
            if active.node is focused and active.enabled:
                shown.setdefault(active.binding.action, active.binding)
        labels: list[Content] = []
        for binding in shown.values():
            _, name, arguments = parse(binding.action)
            if not binding.show or not screen.check_action(name, arguments):
                continue
            key = binding.key.partition(",")[0]
            label = Content.assemble(
                (key_name(key), "bold $footer-key-foreground"), f" {binding.description}"
            )
            labels.append(clickable(label, key))
        return labels
