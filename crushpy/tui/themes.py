"""Our themes for dark and light terminals, and the choice of one for a terminal."""

from dataclasses import replace

from textual.theme import BUILTIN_THEMES, Theme

ROLES = (
    "primary",
    "secondary",
    "foreground",
    "background",
    "surface",
    "panel",
    "success",
    "warning",
    "error",
)


def _theme(name: str, colours: str, **variables: str) -> Theme:
    """A theme with a colour for each of `ROLES`. The colours of texts and borders that are not among the
    variables are derived from the main ones."""
    roles = dict(zip(ROLES, colours.split(), strict=True))
    texts = ("primary", "secondary", "success", "warning", "error")
    named = {f"text-{role}": roles[role] for role in texts} | {"text-accent": roles["primary"]}
    named |= {name.replace("_", "-"): value for name, value in variables.items()}
    derived = {"border": roles["primary"], "footer-key-foreground": named["text-primary"]}
    return Theme(name=name, dark="dark" in name, accent=roles["primary"], variables=derived | named, **roles)


DARK = _theme(
    "crushpy-dark",
    "#4ad2c0 #a9b1d0 #e6e8f0 #13151d #1c1f2a #282c3a #9bd06b #f0c35a #ff7b86",
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
    "#006d62 #4a5170 #22242d #fbfaf7 #f0eee8 #e4e1d8 #2c6b2f #7a4f00 #a8201a",
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
    "#5fd7af #afafd7 #e4e4e4 #121212 #1c1c1c #303030 #87d75f #ffd75f #ff8787",
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
    "#005f5f #4e4e4e #1c1c1c #ffffff #eeeeee #e4e4e4 #005f00 #5f5f00 #af0000",
    text_muted="#585858",
    text_disabled="#585858",
    block_cursor_background="#d7ffff",
    block_cursor_foreground="#121212",
    block_cursor_blurred_background="#e4e4e4",
    border_blurred="#bcbcbc",
    input_selection_background="#afd7d7",
)

OWN_THEMES = {theme.name: theme for theme in (DARK, LIGHT, DARK_256, LIGHT_256)}
_CURSORS = {"ansi-dark": ("ansi_bright_white", "ansi_blue"), "ansi-light": ("ansi_black", "ansi_bright_cyan")}
TERMINAL_THEMES = {
    name: replace(
        BUILTIN_THEMES[name],
        variables={
            **BUILTIN_THEMES[name].variables,
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
