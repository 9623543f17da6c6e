"""The transcript's palette: every style it draws with, taken from its stylesheet and the theme."""

from collections.abc import Callable

from rich.style import Style

from crushpy.context.inspect import FREE, WINDOW_PARTS


def part_class(part: str) -> str:
    """The name of the style of a part of the window, which is also a variable of every theme."""
    return f"strip-{part.replace(' ', '-')}"


BLOCKS = {
    "text": "color: $foreground;",
    "muted": "color: $text-muted;",
    "user": "color: $foreground; background: $surface;",
    "user-bar": "color: $primary; background: $surface;",
    "code": "color: $foreground; background: $surface;",
    "running": "color: $text-accent;",
    "success": "color: $text-success;",
    "warning": "color: $text-warning;",
    "error": "color: $text-error;",
    "added": "color: $foreground; background: $success 18%;",
    "removed": "color: $foreground; background: $error 18%;",
    "hunk": "color: $text-muted; background: $surface;",
    "rule": "color: $primary;",
    "card": "color: $primary; text-style: bold;",
    "cursor": "color: $accent;",
    "track": "color: $foreground 20%;",
    **{part_class(part): f"color: ${part_class(part)};" for part in (*WINDOW_PARTS, FREE)},
}
"""Styles with a background, for whole lines."""
INLINE = {
    "h1": "color: $text-primary; text-style: bold underline;",
    "h2": "color: $text-primary; text-style: bold;",
    "h3": "color: $text-secondary; text-style: bold;",
    "inline-code": "color: $text-accent;",
    "link": "color: $text-primary; text-style: underline;",
    "keyword": "color: $text-primary;",
    "string": "color: $text-success;",
    "number": "color: $text-warning;",
    "comment": "color: $text-muted; text-style: italic;",
    "function": "color: $text-accent;",
    "type": "color: $text-secondary;",
    "operator": "color: $text-error;",
}
"""Styles laid over another one: they leave the background unchanged."""
COMPONENTS = {f"transcript--{name}" for name in BLOCKS | INLINE}
_RULES = "\n".join(f"    & > .transcript--{name} {{ {rule} }}" for name, rule in (BLOCKS | INLINE).items())
CSS = f"""
Transcript {{
    width: 100%;
    height: 1fr;
    overflow: hidden scroll;
    scrollbar-size: 0 1;
    scrollbar-visibility: hidden;
    background: $background;
{_RULES}
    &:ansi > .transcript--muted {{ color: ansi_default; text-style: dim; }}
    &:ansi > .transcript--comment {{ color: ansi_default; text-style: italic dim; }}
    &:ansi > .transcript--hunk {{ color: ansi_default; text-style: dim; }}
    &:ansi > .transcript--track {{ color: ansi_default; text-style: dim; }}
    &:ansi > .transcript--added {{ color: $success; background: transparent; }}
    &:ansi > .transcript--removed {{ color: $error; background: transparent; }}
    &:nocolor > .transcript--added {{ text-style: bold; }}
    &:nocolor > .transcript--removed {{ text-style: dim; }}
    &:nocolor > .transcript--inline-code {{ text-style: bold; }}
}}
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
        self.text = self._styles["text"]
        self.muted = self._styles["muted"]
        self.code = self._styles["code"]
        self.rule = self._styles["rule"]
        mark = self.muted.color.name if self.muted.color else "default"
        self.fence_head = self.code + Style(meta={"mark": mark})
        """Fills the first row of a code block in a reply, with a label of this colour at its end."""
        self.dim = Style(color=self.muted.color, dim=self.muted.dim)
        """The colour of muted text, to lay over any background."""

    @property
    def has_colours(self) -> bool:
        """Whether the parts of the window differ in colour, not only in shades of grey (NO_COLOR)."""
        colours = [self._styles[part_class(part)].color for part in WINDOW_PARTS]
        return any(
            colour and colour.name != "default" and len(set(colour.get_truecolor())) > 1 for colour in colours
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Palette) and self._styles == other._styles

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __getitem__(self, name: str) -> Style:
        return self._styles[name]

    def over(self, base: Style, top: "Style | str") -> Style:
        """`top` laid over `base`. Rich caches the sum."""
        return base + (self._styles[top] if isinstance(top, str) else top)

    def link(self, base: Style, href: str, *, external: bool) -> Style:
        """The style of a link. A click finds `href` in it; if `external`, the terminal does too (OSC 8)."""
        return self.over(base, "link") + Style(link=href if external else None, meta={"href": href})
