"""What a new conversation begins with: who is here, where, three things to try. The first prompt ends it."""

from textual.content import Content
from textual.widget import Widget

from crushpy.messages import Data
from crushpy.sanitize import one_line
from crushpy.tui.app_type import app_of

TRY = (
    ("Explain this project", "a prompt in your own words"),
    ("@", "names a file, ! runs a command of your own, / lists what there is"),
    ("Ctrl+P", "everything crushpy can do; ? shows the keys"),
)
LABEL = 11
LEAST_ROWS = 16
"""Where the terminal has fewer rows, they are left to the conversation."""
ROOMY = 30
"""Rows from which on there is a line for each thing."""


class Greeting(Data, frozen=True):
    """What the card says."""

    version: str
    folder: str
    branch: str = ""
    model: str = ""
    method: str = "auto"
    files: tuple[str, ...] = ()
    """Names of the context files the agent has read."""
    last: str = ""
    """The last conversation of this folder, and when; empty where there was none."""


def short_card(greeting: Greeting) -> Content:
    """The same in three rows."""
    where = one_line(greeting.folder) + (f" · {one_line(greeting.branch)}" if greeting.branch else "")
    about = [
        f"reads {', '.join(map(one_line, greeting.files))}" if greeting.files else "no AGENTS.md here: /init"
    ]
    about += [f"last here: {one_line(greeting.last)}"] if greeting.last else []
    keys = "? keys  Ctrl+P everything  @ a file  ! a command of your own"
    return Content("\n").join(
        [
            Content.assemble(
                ("◆ crushpy", "bold $accent"), (f" {greeting.version}", "$text-muted"), f"  {where}"
            ),
            Content.styled(f"  {' · '.join(about)}", "$text-muted"),
            Content.styled(f"  {keys}", "$text-muted"),
        ]
    )


def card(greeting: Greeting) -> Content:
    """The card, row by row."""
    where = one_line(greeting.folder) + (f" · {one_line(greeting.branch)}" if greeting.branch else "")
    files = ", ".join(map(one_line, greeting.files)) or "no AGENTS.md here; /init writes one"
    rows = [
        Content.assemble(("◆ crushpy", "bold $accent"), (f" {greeting.version}", "$text-muted")),
        Content.styled(f"  {where}", ""),
        Content(""),
        _row("model", f"{one_line(greeting.model)} · compaction {greeting.method}"),
        _row("reads", files),
    ]
    if greeting.last:
        rows.append(_row("last here", f"{one_line(greeting.last)} · /sessions goes on with it"))
    rows.append(Content(""))
    for number, (what, why) in enumerate(TRY):
        rows.append(
            Content.assemble(
                (f"  {'try' if not number else '':<{LABEL}}", "$text-muted"),
                (what, "$text-accent"),
                (f"  {why}", "$text-muted"),
            )
        )
    return Content("\n").join(rows)


def _row(label: str, text: str) -> Content:
    return Content.assemble((f"  {label:<{LABEL}}", "$text-muted"), text)


class WelcomeCard(Widget):
    DEFAULT_CSS = """
    WelcomeCard { height: auto; padding: 0 2 0 1; }
    """

    def __init__(self, greeting: Greeting) -> None:
        super().__init__()
        self._greeting = greeting

    def render(self) -> Content:
        return (card if app_of(self).size.height >= ROOMY else short_card)(self._greeting)
