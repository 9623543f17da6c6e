"""Our themes for dark and light terminals, and the choice of one for a terminal."""

from dataclasses import replace

from textual.theme import BUILTIN_THEMES, Theme

DARK = Theme(
    name="crushpy-dark",
    dark=True,
    primary="#4ad2c0",
    secondary="#a9b1d0",
    accent="#4ad2c0",
    foreground="#e6e8f0",
    background="#13151d",
    surface="#1c1f2a",
    panel="#282c3a",
    success="#9bd06b",
    warning="#f0c35a",
    error="#ff7b86",
    variables={
        "text-muted": "#a2a8bd",
        "text-disabled": "#959bb0",
        "text-secondary": "#b9c0dc",
        "text-error": "#ff8d96",
        "block-cursor-background": "#22383f",
        "block-cursor-foreground": "#ffffff",
        "block-cursor-blurred-background": "#1f2a33",
        "border-blurred": "#3a4054",
        "input-selection-background": "#4ad2c0 30%",
    },
)
LIGHT = Theme(
    name="crushpy-light",
    dark=False,
    primary="#006d62",
    secondary="#4a5170",
    accent="#006d62",
    foreground="#22242d",
    background="#fbfaf7",
    surface="#f0eee8",
    panel="#e4e1d8",
    success="#2c6b2f",
    warning="#7a4f00",
    error="#a8201a",
    variables={
        "text-muted": "#565b6b",
        "text-disabled": "#5c6171",
        "text-primary": "#00665c",
        "text-accent": "#00665c",
        "block-cursor-background": "#cfe6e2",
        "block-cursor-foreground": "#101218",
        "block-cursor-blurred-background": "#e2ece9",
        "border-blurred": "#c9c5b9",
        "input-selection-background": "#006d62 25%",
    },
)
DARK_256 = Theme(
    name="crushpy-dark-256",
    dark=True,
    primary="#5fd7af",
    secondary="#afafd7",
    accent="#5fd7af",
    foreground="#e4e4e4",
    background="#121212",
    surface="#1c1c1c",
    panel="#303030",
    success="#87d75f",
    warning="#ffd75f",
    error="#ff8787",
    variables={
        "text-muted": "#a8a8a8",
        "text-disabled": "#a8a8a8",
        "block-cursor-background": "#005f5f",
        "block-cursor-foreground": "#ffffff",
        "block-cursor-blurred-background": "#303030",
        "border-blurred": "#585858",
        "input-selection-background": "#005f5f",
    },
)
LIGHT_256 = Theme(
    name="crushpy-light-256",
    dark=False,
    primary="#005f5f",
    secondary="#4e4e4e",
    accent="#005f5f",
    foreground="#1c1c1c",
    background="#ffffff",
    surface="#eeeeee",
    panel="#e4e4e4",
    success="#005f00",
    warning="#5f5f00",
    error="#af0000",
    variables={
        "text-muted": "#585858",
        "text-disabled": "#585858",
        "block-cursor-background": "#d7ffff",
        "block-cursor-foreground": "#121212",
        "block-cursor-blurred-background": "#e4e4e4",
        "border-blurred": "#bcbcbc",
        "input-selection-background": "#afd7d7",
    },
)


def _derive_variables(theme: Theme) -> Theme:
    """Sets the colours of texts and borders that a theme does not set itself from its main colours."""
    roles = ("primary", "secondary", "accent", "success", "warning", "error")
    variables = {f"text-{role}": getattr(theme, role) for role in roles} | theme.variables
    derived = {"border": theme.primary, "footer-key-foreground": variables["text-primary"]}
    return replace(theme, variables=derived | variables)


OWN_THEMES = {theme.name: _derive_variables(theme) for theme in (DARK, LIGHT, DARK_256, LIGHT_256)}
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
