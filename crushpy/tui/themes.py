"""Our themes for dark and light terminals, and the choice of one for a terminal."""

from dataclasses import fields, replace
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.theme import BUILTIN_THEMES, Theme
from textual.widget import Widget


def _theme(name: str, **colours: str) -> Theme:
    """A theme of its main colours and of variables. Colours of texts and borders that are not among them are
    derived from the main ones."""
    roles: dict[str, Any] = {
        field.name: colours.pop(field.name) for field in fields(Theme) if field.name in colours
    }
    texts = ("primary", "secondary", "success", "warning", "error")
    named = {f"text-{role}": roles[role] for role in texts} | {"text-accent": roles["primary"]}
    named |= {name.replace("_", "-"): value for name, value in colours.items()}
    derived = {"border": roles["primary"], "footer-key-foreground": named["text-primary"]}
    return Theme(name=name, dark="dark" in name, accent=roles["primary"], variables=derived | named, **roles)


DARK = _theme(
    "crushpy-dark",
    primary="#4ad2c0",
    secondary="#a9b1d0",
    foreground="#e6e8f0",
    background="#13151d",
    surface="#1c1f2a",
    panel="#282c3a",
    success="#9bd06b",
    warning="#f0c35a",
    error="#ff7b86",
    text_muted="#a2a8bd",
    text_disabled="#959bb0",
    text_secondary="#b9c0dc",
    text_error="#ff8d96",
    block_cursor_background="#22383f",
    block_cursor_foreground="#ffffff",
    block_cursor_blurred_background="#1f2a33",
    border_blurred="#3a4054",
    input_selection_background="#4ad2c0 30%",
)
LIGHT = _theme(
    "crushpy-light",
    primary="#006d62",
    secondary="#4a5170",
    foreground="#22242d",
    background="#fbfaf7",
    surface="#f0eee8",
    panel="#e4e1d8",
    success="#2c6b2f",
    warning="#7a4f00",
    error="#a8201a",
    text_muted="#565b6b",
    text_disabled="#5c6171",
    text_primary="#00665c",
    text_accent="#00665c",
    block_cursor_background="#cfe6e2",
    block_cursor_foreground="#101218",
    block_cursor_blurred_background="#e2ece9",
    border_blurred="#c9c5b9",
    input_selection_background="#006d62 25%",
)
DARK_256 = _theme(
    "crushpy-dark-256",
    primary="#5fd7af",
    secondary="#afafd7",
    foreground="#e4e4e4",
    background="#121212",
    surface="#1c1c1c",
    panel="#303030",
    success="#87d75f",
    warning="#ffd75f",
    error="#ff8787",
    text_muted="#a8a8a8",
    text_disabled="#a8a8a8",
    block_cursor_background="#005f5f",
    block_cursor_foreground="#ffffff",
    block_cursor_blurred_background="#303030",
    border_blurred="#585858",
    input_selection_background="#005f5f",
)
LIGHT_256 = _theme(
    "crushpy-light-256",
    primary="#005f5f",
    secondary="#4e4e4e",
    foreground="#1c1c1c",
    background="#ffffff",
    surface="#eeeeee",
    panel="#e4e4e4",
    success="#005f00",
    warning="#5f5f00",
    error="#af0000",
    text_muted="#585858",
    text_disabled="#585858",
    block_cursor_background="#d7ffff",
    block_cursor_foreground="#121212",
    block_cursor_blurred_background="#e4e4e4",
    border_blurred="#bcbcbc",
    input_selection_background="#afd7d7",
)

OWN_THEMES = {theme.name: theme for theme in (DARK, LIGHT, DARK_256, LIGHT_256)}

STRIP_DARK = {
    "strip-system": "#5f86d9",
    "strip-tools": "#8f7fd8",
    "strip-rules": "#cf7fb0",
    "strip-summary": "#4ad2c0",
    "strip-conversation": "#9bd06b",
    "strip-tool-output": "#dba552",
    "strip-free": "#2f3445",
}
"""The parts of the context strip in a dark theme; every theme has these variables."""
STRIP_LIGHT = {
    "strip-system": "#3467c2",
    "strip-tools": "#7457c0",
    "strip-rules": "#b5478c",
    "strip-summary": "#00857a",
    "strip-conversation": "#5a8f2a",
    "strip-tool-output": "#b97a10",
    "strip-free": "#d6d2c6",
}
STRIP_16 = {
    "strip-system": "ansi_blue",
    "strip-tools": "ansi_magenta",
    "strip-rules": "ansi_bright_magenta",
    "strip-summary": "ansi_cyan",
    "strip-conversation": "ansi_green",
    "strip-tool-output": "ansi_yellow",
}
_CURSORS = {"ansi-dark": ("ansi_bright_white", "ansi_blue"), "ansi-light": ("ansi_black", "ansi_bright_cyan")}
TERMINAL_THEMES = {
    name: replace(
        BUILTIN_THEMES[name],
        variables={
            **BUILTIN_THEMES[name].variables,
            **STRIP_16,
            "strip-free": "ansi_bright_black" if name == "ansi-dark" else "ansi_white",
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
    if 0 < colours <= 16:
        return "ansi-light" if light else "ansi-dark"
    if 0 < colours <= 256:
        return (LIGHT_256 if light else DARK_256).name
    return (LIGHT if light else DARK).name


def filter_style(widget: Widget, style: Style) -> Style:
    """A style after the app's line filters, which handle ANSI colours and NO_COLOR."""
    background = widget.background_colors[1]
    segments = [Segment(" ", style)]
    for line_filter in widget.get_line_filters():
        segments = line_filter.apply(segments, background)
    return segments[0].style or style
