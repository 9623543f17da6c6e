"""The start options, and the options of `crushpy run`: two structs, with a flag for each field.

Shared by the command line, the app and the bootstrap. A field of `StartOptions` with a `StartFlag` is a flag
of `crushpy` and `crushpy run`. Imports nothing heavy: every start loads this.
"""

from functools import cache
from typing import Annotated, Any, get_args

from crushpy.core.access import MODES
from crushpy.core.app_commands import METHODS
from crushpy.core.messages import Data


class StartFlag(Data, frozen=True):
    """The command-line flag of a field."""

    names: tuple[str, ...]
    """Empty: the argument of the command."""
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    setting: str = ""
    """The setting it overrides, for this process only."""
    chat: bool = True
    """False: a flag of `crushpy run` alone."""


class StartOptions(Data, frozen=True):
    """Which conversation to open, and how."""

    cwd: Annotated[str, StartFlag(("--cwd",), "Work in this folder.", "DIR")] = ""
    resume_latest: Annotated[
        bool, StartFlag(("--continue", "-c"), "Continue the latest conversation of this folder.")
    ] = False
    session: Annotated[str, StartFlag(("--session", "-s"), "Continue this session.", "ID")] = ""
    """An id or a unique prefix of one."""
    pick: Annotated[
        bool, StartFlag(("--resume",), "Pick a conversation to continue; with an ID, continue that one.")
    ] = False
    fork: Annotated[
        bool, StartFlag(("--fork",), "With -c or -s: continue in a fork; the session is unchanged.")
    ] = False
    at: Annotated[
        str,
        StartFlag(
            ("--at",),
            "With -c or -s: continue in a fork that ends at this message. Implies --fork.",
            "MESSAGE",
        ),
    ] = ""
    """An id or a unique prefix of one, in the session or its ancestors."""
    model: Annotated[
        str,
        StartFlag(
            ("--model", "-m"), "For example openai/gpt-5; see `crushpy models`.", "MODEL", setting="model"
        ),
    ] = ""
    compaction: Annotated[
        str,
        StartFlag(
            ("--compaction",),
            "Who decides when to compact: crushpy (auto) or the model (llm).",
            choices=tuple(method.value for method in METHODS),
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
    add_dir: Annotated[
        tuple[str, ...],
        StartFlag(("--add-dir",), "Work in this folder as well: the same rules. Repeatable.", "DIR"),
    ] = ()
    yolo: Annotated[bool, StartFlag(("--yolo",), "Allow everything that no rule denies.")] = False
    image: Annotated[
        tuple[str, ...],
        StartFlag(("--image",), "An image (PNG, JPEG, GIF, WebP) for the prompt. Repeatable.", "FILE"),
    ] = ()
    allow: Annotated[
        tuple[str, ...],
        StartFlag(("--allow",), "Allow this rule, e.g. 'bash(npm test)'. Repeatable.", "RULE", chat=False),
    ] = ()
    max_steps: Annotated[
        int | None,
        StartFlag(("--max-steps",), "Stop after this many model calls; 0: none. [default: 200]", minimum=0),
    ] = None
    budget: Annotated[
        str,
        StartFlag(
            ("--budget",),
            "What the conversation may spend: 5usd, or 200k tokens.",
            "AMOUNT",
            setting="budget.conversation",
        ),
    ] = ""
    max_tokens: Annotated[
        int | None, StartFlag(("--max-tokens",), "Stop after this many tokens.", minimum=1, chat=False)
    ] = None
    max_cost: Annotated[
        float | None, StartFlag(("--max-cost",), "Stop after this many US dollars.", minimum=0, chat=False)
    ] = None
    prompt: str = ""
    """The first prompt: `crushpy "two words"`."""
    interactive: bool = False
    """A user can be asked."""
    read_only: bool = False
    """Nothing is written: no lease is acquired and nothing is repaired."""

    def setting_flags(self) -> dict[str, object]:
        given = {flag.setting: getattr(self, field) for field, (_, flag) in flags_of(StartOptions).items()}
        return {setting: value for setting, value in given.items() if setting and value}


class RunOptions(Data, frozen=True):
    """What `crushpy run` runs, a prompt or a file of tasks, and what it prints."""

    prompt: Annotated[
        str, StartFlag((), "The prompt. Text on stdin is appended to it; `-` reads only stdin.")
    ] = ""
    form: Annotated[
        str,
        StartFlag(("--format",), "What to print. [default: text]", choices=("text", "json", "stream-json")),
    ] = "text"
    tasks: Annotated[
        str,
        StartFlag(
            ("--tasks",),
            "Run a list of tasks instead of a prompt, each in a new session; `-` reads one per line from "
            "stdin.",
            "FILE",
        ),
    ] = ""
    parallel: Annotated[
        int | None,
        StartFlag(
            ("--parallel",),
            "How many tasks of a list may run in parallel, if they only read or have their own worktree. "
            "[default: 1]",
            "N",
            minimum=1,
            maximum=32,
        ),
    ] = None
    fleet: Annotated[
        bool, StartFlag(("--fleet",), "Run the list on workers (`crushpy worker`), on any machines.")
    ] = False
    detach: Annotated[
        bool, StartFlag(("--detach",), "With --fleet: return at once with the id of the list.")
    ] = False
    dirty: Annotated[
        bool,
        StartFlag(
            ("--dirty/--no-dirty",), "With --fleet: send uncommitted changes as well. [default: dirty]"
        ),
    ] = True
    schema: Annotated[
        str,
        StartFlag(
            ("--schema",), "A JSON schema: print a JSON value that matches it, and nothing else.", "FILE"
        ),
    ] = ""
    quiet: Annotated[bool, StartFlag(("--quiet", "-q"), "Print only the answer and errors.")] = False
    asks: bool = False
    """Whether the user can be asked on the terminal."""


@cache
def flags_of(options: type[Data]) -> dict[str, tuple[Any, StartFlag]]:
    """Each field that has a flag, with its type and the flag, in order."""
    hints = {field: get_args(hint) or (hint,) for field, hint in options.__annotations__.items()}
    marks = [(field, kind, mark) for field, (kind, *marks) in hints.items() for mark in marks]
    return {field: (kind, mark) for field, kind, mark in marks if isinstance(mark, StartFlag)}
