"""Our own colours, for dark terminals and light ones, and which of them a terminal gets."""

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
        "text-primary": "#4ad2c0",
        "text-secondary": "#b9c0dc",
        "text-accent": "#4ad2c0",
        "text-success": "#9bd06b",
        "text-warning": "#f0c35a",
        "text-error": "#ff8d96",
        "block-cursor-background": "#22383f",
        "block-cursor-foreground": "#ffffff",
        "block-cursor-blurred-background": "#1f2a33",
        "border": "#4ad2c0",
        "border-blurred": "#3a4054",
        "footer-key-foreground": "#4ad2c0",
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
        "text-secondary": "#4a5170",
        "text-accent": "#00665c",
        "text-success": "#2c6b2f",
        "text-warning": "#7a4f00",
        "text-error": "#a8201a",
        "block-cursor-background": "#cfe6e2",
        "block-cursor-foreground": "#101218",
        "block-cursor-blurred-background": "#e2ece9",
        "border": "#006d62",
        "border-blurred": "#c9c5b9",
        "footer-key-foreground": "#00665c",
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
        "text-primary": "#5fd7af",
        "text-secondary": "#afafd7",
        "text-accent": "#5fd7af",
        "text-success": "#87d75f",
        "text-warning": "#ffd75f",
        "text-error": "#ff8787",
        "block-cursor-background": "#005f5f",
        "block-cursor-foreground": "#ffffff",
        "block-cursor-blurred-background": "#303030",
        "border": "#5fd7af",
        "border-blurred": "#585858",
        "footer-key-foreground": "#5fd7af",
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
        "text-primary": "#005f5f",
        "text-secondary": "#4e4e4e",
        "text-accent": "#005f5f",
        "text-success": "#005f00",
        "text-warning": "#5f5f00",
        "text-error": "#af0000",
        "block-cursor-background": "#d7ffff",
        "block-cursor-foreground": "#121212",
        "block-cursor-blurred-background": "#e4e4e4",
        "border": "#005f5f",
        "border-blurred": "#bcbcbc",
        "footer-key-foreground": "#005f5f",
        "input-selection-background": "#afd7d7",
    },
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
"""Textual's themes of the terminal's own colours, with a cursor on which less important words can be read."""


def fitting_theme(*, light: bool, colours: int) -> str:
    """The theme for a terminal of which we know the background and how many colours it has.

    Ours would be rounded to arbitrary colours: with 256 there are themes of colours that exist there,
    with sixteen the terminal's own are used.
    """
    if 0 < colours <= 16:
        return "ansi-light" if light else "ansi-dark"
    if 0 < colours <= 256:
        return (LIGHT_256 if light else DARK_256).name
    return (LIGHT if light else DARK).name
