"""The transcript's palette: every style it draws with, taken from its stylesheet and the theme."""

from collections.abc import Callable

from rich.style import Style

BLOCKS = (
    "text",
    "muted",
    "user",
    "user-bar",
    "code",
    "running",
    "success",
    "warning",
    "error",
    "added",
    "removed",
    "hunk",
    "rule",
    "card",
    "cursor",
    "track",
    "thumb",
)
"""Styles with a background, for whole lines."""

INLINE = (
    "h1",
    "h2",
    "h3",
    "inline-code",
    "link",
    "keyword",
    "string",
    "number",
    "comment",
    "function",
    "type",
    "operator",
)
"""Styles laid over another one: they leave the background unchanged."""

COMPONENTS = {f"transcript--{name}" for name in (*BLOCKS, *INLINE)}

CSS = """
Transcript {
    width: 100%;
    height: 1fr;
    overflow: hidden hidden;
    scrollbar-size: 0 0;
    background: $background;

    & > .transcript--text { color: $foreground; }
    & > .transcript--muted { color: $text-muted; }
    & > .transcript--user { color: $foreground; background: $surface; }
    & > .transcript--user-bar { color: $primary; background: $surface; }
    & > .transcript--code { color: $foreground; background: $surface; }
    & > .transcript--running { color: $text-accent; }
    & > .transcript--success { color: $text-success; }
    & > .transcript--warning { color: $text-warning; }
    & > .transcript--error { color: $text-error; }
    & > .transcript--added { color: $foreground; background: $success 18%; }
    & > .transcript--removed { color: $foreground; background: $error 18%; }
    & > .transcript--hunk { color: $text-muted; background: $surface; }
    & > .transcript--rule { color: $primary; }
    & > .transcript--card { color: $primary; text-style: bold; }
    & > .transcript--cursor { color: $accent; }
    & > .transcript--track { color: $foreground 20%; }
    & > .transcript--thumb { color: $primary; }

    & > .transcript--h1 { color: $text-primary; text-style: bold underline; }
    & > .transcript--h2 { color: $text-primary; text-style: bold; }
    & > .transcript--h3 { color: $text-secondary; text-style: bold; }
    & > .transcript--inline-code { color: $text-accent; }
    & > .transcript--link { color: $text-primary; text-style: underline; }
    & > .transcript--keyword { color: $text-primary; }
    & > .transcript--string { color: $text-success; }
    & > .transcript--number { color: $text-warning; }
    & > .transcript--comment { color: $text-muted; text-style: italic; }
    & > .transcript--function { color: $text-accent; }
    & > .transcript--type { color: $text-secondary; }
    & > .transcript--operator { color: $text-error; }

    &:ansi > .transcript--muted { color: ansi_default; text-style: dim; }
    &:ansi > .transcript--comment { color: ansi_default; text-style: italic dim; }
    &:ansi > .transcript--hunk { color: ansi_default; text-style: dim; }
    &:ansi > .transcript--track { color: ansi_default; text-style: dim; }
    &:ansi > .transcript--added { color: $success; background: transparent; }
    &:ansi > .transcript--removed { color: $error; background: transparent; }
    &:nocolor > .transcript--added { text-style: bold; }
    &:nocolor > .transcript--removed { text-style: dim; }
    &:nocolor > .transcript--inline-code { text-style: bold; }
}
"""

BOLD = Style(bold=True)
ITALIC = Style(italic=True)
STRIKE = Style(strike=True)


class Palette:
    """Styles by name, ready for the terminal. Two palettes are equal when they look the same."""

    def __init__(self, find: Callable[[str, bool], Style]) -> None:
        """`find` returns the style of a component class: complete, or (True) only what it adds."""
        self._styles = {name: find(f"transcript--{name}", False) for name in BLOCKS}
        self._styles.update({name: find(f"transcript--{name}", True) for name in INLINE})
        self._laid: dict[tuple[Style, Style], Style] = {}
        self._links: dict[tuple[Style, str], Style] = {}
        self.text = self._styles["text"]
        self.muted = self._styles["muted"]
        self.code = self._styles["code"]
        self.rule = self._styles["rule"]
        self.fence = self.code + Style(meta={"fence": "inside"})
        """Fills the rows of a code block in a reply."""
        mark = self.muted.color.name if self.muted.color else "default"
        self.fence_head = self.code + Style(meta={"fence": "head", "mark": mark})
        """Fills the first of them, with a label of this colour at its end."""
        self.dim = Style(color=self.muted.color, dim=self.muted.dim)
        """The colour of muted text, to lay over any background."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Palette) and self._styles == other._styles

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __getitem__(self, name: str) -> Style:
        return self._styles[name]

    def over(self, base: Style, top: "Style | str") -> Style:
        """`top` laid over `base`."""
        if isinstance(top, str):
            top = self._styles[top]
        laid = self._laid.get((base, top))
        if laid is None:
            laid = self._laid[base, top] = base + top
        return laid

    def link(self, base: Style, href: str, *, external: bool) -> Style:
        """The style of a link. A click finds `href` in it; if `external`, the terminal does too (OSC 8)."""
        if len(self._links) > 1000:
            self._links.clear()
        style = self._links.get((base, href))
        if style is None:
            style = self.over(base, "link") + Style(link=href if external else None, meta={"href": href})
            self._links[base, href] = style
        return style
