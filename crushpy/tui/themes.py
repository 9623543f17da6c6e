"""Our themes for dark and light terminals, and the choice of one for a terminal."""

from dataclasses import fields, replace
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.theme import BUILTIN_THEMES, Theme
from textual.widget import Widget

_NAMES = ("crushpy-dark", "crushpy-light", "crushpy-dark-256", "crushpy-light-256")
_COLOURS = {
    "primary": ("#4ad2c0", "#006d62", "#5fd7af", "#005f5f"),
    "secondary": ("#a9b1d0", "#4a5170", "#afafd7", "#4e4e4e"),
    "foreground": ("#e6e8f0", "#22242d", "#e4e4e4", "#1c1c1c"),
    "background": ("#13151d", "#fbfaf7", "#121212", "#ffffff"),
    "surface": ("#1c1f2a", "#f0eee8", "#1c1c1c", "#eeeeee"),
    "panel": ("#282c3a", "#e4e1d8", "#303030", "#e4e4e4"),
    "success": ("#9bd06b", "#2c6b2f", "#87d75f", "#005f00"),
    "warning": ("#f0c35a", "#7a4f00", "#ffd75f", "#5f5f00"),
    "error": ("#ff7b86", "#a8201a", "#ff8787", "#af0000"),
    "text-primary": ("", "#00665c", "", ""),
    "text-accent": ("", "#00665c", "", ""),
    "text-secondary": ("#b9c0dc", "", "", ""),
    "text-error": ("#ff8d96", "", "", ""),
    "text-muted": ("#a2a8bd", "#565b6b", "#a8a8a8", "#585858"),
    "text-disabled": ("#959bb0", "#5c6171", "#a8a8a8", "#585858"),
    "block-cursor-background": ("#22383f", "#cfe6e2", "#005f5f", "#d7ffff"),
    "block-cursor-foreground": ("#ffffff", "#101218", "#ffffff", "#121212"),
    "block-cursor-blurred-background": ("#1f2a33", "#e2ece9", "#303030", "#e4e4e4"),
    "border-blurred": ("#3a4054", "#c9c5b9", "#585858", "#bcbcbc"),
    "input-selection-background": ("#4ad2c0 30%", "#006d62 25%", "#005f5f", "#afd7d7"),
}
"""The colour of each role in the four themes. An empty one is derived from the main colours."""


def _theme(name: str, colours: dict[str, str]) -> Theme:
    roles: dict[str, Any] = {
        field.name: colours.pop(field.name) for field in fields(Theme) if field.name in colours
    }
    texts = ("primary", "secondary", "success", "warning", "error")
    named = {f"text-{role}": roles[role] for role in texts} | {"text-accent": roles["primary"]} | colours
    derived = {"border": roles["primary"], "footer-key-foreground": named["text-primary"]}
    return Theme(name=name, dark="dark" in name, accent=roles["primary"], variables=derived | named, **roles)


OWN_THEMES = {
    name: _theme(name, {role: values[at] for role, values in _COLOURS.items() if values[at]})
    for at, name in enumerate(_NAMES)
}
_STRIP = {
    "strip-system": ("#5f86d9", "#3467c2", "ansi_blue"),
    "strip-tools": ("#8f7fd8", "#7457c0", "ansi_magenta"),
    "strip-rules": ("#cf7fb0", "#b5478c", "ansi_bright_magenta"),
    "strip-summary": ("#4ad2c0", "#00857a", "ansi_cyan"),
    "strip-conversation": ("#9bd06b", "#5a8f2a", "ansi_green"),
    "strip-tool-output": ("#dba552", "#b97a10", "ansi_yellow"),
    "strip-free": ("#2f3445", "#d6d2c6", "ansi_bright_black"),
}
"""The parts of the context strip in a dark theme, a light one, and with sixteen colours."""
STRIP_DARK, STRIP_LIGHT, STRIP_16 = (
    {part: colours[at] for part, colours in _STRIP.items()} for at in range(3)
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
