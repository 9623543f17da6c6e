"""How crushpy is started: one struct, and the flag of each of its fields.

The command line, the app and the bootstrap share it. A field with a `StartFlag` is a flag of `crushpy` and of
`crushpy run`; what it does is up to whoever reads the field. Light: the chat loads this at every start.
"""

from functools import cache
from typing import Annotated, Any, get_args

from crushpy.core.access import MODES
from crushpy.core.messages import Data

METHODS = ("auto", "llm")


class StartFlag(Data, frozen=True):
    """How a field is asked for on the command line."""

    names: tuple[str, ...]
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    setting: str = ""
    """The setting it overrides, for this process only."""
    chat: bool = True
    """False: a flag of `crushpy run` alone."""


class StartOptions(Data, frozen=True):
    """Which conversation to open, and how."""

    cwd: Annotated[str, StartFlag(("--cwd",), "Work in this folder.", "DIR")] = ""
    resume_latest: Annotated[
        bool, StartFlag(("--continue", "-c"), "Go on with the latest conversation of this folder.")
    ] = False
    session: Annotated[str, StartFlag(("--session", "-s"), "Go on with this session.", "ID")] = ""
    """An id or the unique beginning of one."""
    pick: Annotated[
        bool,
        StartFlag(("--resume",), "Pick a conversation to go on with; with an ID, go on with that one."),
    ] = False
    fork: Annotated[
        bool, StartFlag(("--fork",), "With -c or -s: go on in a branch, and leave the session alone.")
    ] = False
    at: Annotated[
        str,
        StartFlag(
            ("--at",),
            "With -c or -s: go on in a branch that ends at this message. Implies --fork.",
            "MESSAGE",
        ),
    ] = ""
    """An id or the unique beginning of one, of the session or of those it continues."""
    model: Annotated[
        str,
        StartFlag(("--model", "-m"), "For instance openai/gpt-5; see `crushpy models`.", setting="model"),
    ] = ""
    compaction: Annotated[
        str,
        StartFlag(
            ("--compaction",),
            "Who decides when to start afresh.",
            choices=METHODS,
            setting="compaction.method",
        ),
    ] = ""
    mode: Annotated[
        str,
        StartFlag(
            ("--mode",),
            "Ask before changes, allow edits in this folder, or only read and plan.",
            choices=MODES,
            setting="permissions.mode",
        ),
    ] = ""
    yolo: Annotated[bool, StartFlag(("--yolo",), "Allow everything that is not denied.")] = False
    image: Annotated[
        tuple[str, ...],
        StartFlag(("--image",), "A picture (PNG, JPEG, GIF, WebP) for the prompt. Repeatable.", "FILE"),
    ] = ()
    allow: Annotated[
        tuple[str, ...],
        StartFlag(("--allow",), "Allow for this run, e.g. 'bash(npm test)'. Repeatable.", "RULE", chat=False),
    ] = ()
    max_steps: Annotated[
        int | None, StartFlag(("--max-steps",), "Stop after this many model calls.", minimum=1, chat=False)
    ] = None
    max_tokens: Annotated[
        int | None, StartFlag(("--max-tokens",), "Stop after this many tokens.", minimum=1, chat=False)
    ] = None
    max_cost: Annotated[
        float | None, StartFlag(("--max-cost",), "Stop after this many US dollars.", minimum=0, chat=False)
    ] = None
    prompt: str = ""
    """What to begin with: `crushpy "two words"`."""
    interactive: bool = False
    """Somebody is there to be asked."""
    read_only: bool = False
    """Nothing will be written: no lease is taken and nothing is repaired."""

    def setting_flags(self) -> dict[str, object]:
        """The settings that were given as flags."""
        given = {flag.setting: getattr(self, field) for field, (_, flag) in start_flags().items()}
        return {setting: value for setting, value in given.items() if setting and value}


@cache
def start_flags() -> dict[str, tuple[Any, StartFlag]]:
    """Each field that has a flag, with its type and that flag, in order."""
    found: dict[str, tuple[Any, StartFlag]] = {}
    for field, hint in StartOptions.__annotations__.items():
        kind, *marks = get_args(hint) or (hint,)
        flag = next((mark for mark in marks if isinstance(mark, StartFlag)), None)
        if flag is not None:
            found[field] = (kind, flag)
    return found
