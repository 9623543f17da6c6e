"""Our own colours: one theme for dark terminals, one for light ones, and which of them a terminal gets."""

from textual.theme import Theme

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
OWN_THEMES = {theme.name: theme for theme in (DARK, LIGHT)}


def fitting_theme(*, light: bool, colours: int) -> str:
    """The theme for a terminal of which we know the background and how many colours it has.

    With sixteen, ours would be rounded to colours that nobody chose: the terminal's own are used.
    """
    if 0 < colours <= 16:
        return "ansi-light" if light else "ansi-dark"
    return LIGHT.name if light else DARK.name
