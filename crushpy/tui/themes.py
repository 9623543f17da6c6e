"""Our themes for dark and light terminals, and the choice of one for a terminal."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
from rich.segment import Segment
from rich.style import Style
from textual.theme import BUILTIN_THEMES, Theme
from textual.widget import Widget

_NAMES = ("crushpy-dark", "crushpy-light", "crushpy-dark-256", "crushpy-light-256")
_TABLE = Path(__file__).with_name("themes.toml").read_bytes()
_COLOURS = msgspec.toml.decode(_TABLE, type=dict[str, dict[str, tuple[str, ...]]])
"""Of each role, and of the parts of the context strip."""


def _theme(name: str, colours: dict[str, str]) -> Theme:
    roles: dict[str, Any] = {
        field.name: colours.pop(field.name) for field in fields(Theme) if field.name in colours
    }
    texts = ("primary", "secondary", "success", "warning", "error")
    named = {f"text-{role}": roles[role] for role in texts} | {"text-accent": roles["primary"]} | colours
    derived = {"border": roles["primary"], "footer-key-foreground": named["text-primary"]}
    return Theme(name=name, dark="dark" in name, accent=roles["primary"], variables=derived | named, **roles)


OWN_THEMES = {
    name: _theme(name, {role: values[at] for role, values in _COLOURS["roles"].items() if values[at]})
    for at, name in enumerate(_NAMES)
}
STRIP_DARK, STRIP_LIGHT, STRIP_16 = (
    {part: colours[at] for part, colours in _COLOURS["strip"].items()} for at in range(3)
)
_CURSORS = {"ansi-dark": ("ansi_bright_white", "ansi_blue"), "ansi-light": ("ansi_black", "ansi_bright_cyan")}
TERMINAL_THEMES = {
    name: replace(
        BUILTIN_THEMES[name],
        variables={
            **BUILTIN_THEMES[name].variables,
            **STRIP_16,
            **({"strip-free": "ansi_white"} if name == "ansi-light" else {}),
            "block-cursor-foreground": text,
            "block-cursor-background": ground,
            "block-cursor-blurred-background": ground,
        },
    )
    for name, (text, ground) in _CURSORS.items()
}
"""Textual's themes of the terminal's own colours, with a cursor on which muted text is readable."""


def fitting_theme(*, light: bool, colours: int) -> str:
    """The theme for a terminal with this background and number of colours.

    The RGB themes would be rounded to arbitrary colours: a terminal with 256 colours gets a theme made of
    them, one with sixteen the theme of its own colours.
    """
    shade = "light" if light else "dark"
    if 0 < colours <= 16:
        return f"ansi-{shade}"
    return f"crushpy-{shade}-256" if 0 < colours <= 256 else f"crushpy-{shade}"


def filter_style(widget: Widget, style: Style) -> Style:
    """A style after the app's line filters, which handle ANSI colours and NO_COLOR."""
    background = widget.background_colors[1]
    segments = [Segment(" ", style)]
    for line_filter in widget.get_line_filters():
        segments = line_filter.apply(segments, background)
    return segments[0].style or style
