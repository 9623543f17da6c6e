"""Every key a user may set: its type, its default and what it means.

The types here are the only place that says what is allowed; errors, `config list` and the docs are
made from them.
"""

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from crushpy.core.access import Mode
from crushpy.core.app_commands import APP_COMMANDS
from crushpy.core.defaults import DEFAULT_THRESHOLD
from crushpy.core.messages import Data

PositiveInt = Annotated[int, Meta(gt=0)]
Cost = Annotated[float, Meta(ge=0, le=1_000_000)]
Share = Annotated[float, Meta(gt=0, le=1)]
Threshold = Share | Literal["off"]
VariableName = Annotated[
    str,
    Meta(
        pattern=r"\A([A-Za-z_][A-Za-z0-9_]*)?\Z",
        extra={"allowed": "the name of an environment variable, such as OPENAI_API_KEY", "secret": True},
    ),
]


class Compaction(Data, frozen=True):
    """When a session ends and a fresh one takes over, and what is carried across."""

    method: Annotated[
        Literal["auto", "llm"],
        Meta(description="Who decides when a session ends: crushpy (auto) or the model itself (llm)."),
    ] = "auto"
    threshold: Annotated[
        Threshold,
        Meta(description='With auto: how full the window is when a session ends; "off" waits for overflow.'),
    ] = DEFAULT_THRESHOLD
    fallback_threshold: Annotated[
        Share,
        Meta(description="With llm: how full the window is when crushpy ends the session itself."),
    ] = 0.90
    prepare: Annotated[
        bool,
        Meta(
            description="With auto: whether the summary is made in the background once the window is nearly "
            "full, so that nobody waits for it."
        ),
    ] = True
    moments: Annotated[
        bool,
        Meta(
            description="Whether a natural moment (a todo done, a commit, tests green again, a new prompt) "
            "may end a session early."
        ),
    ] = True
    soft_threshold: Annotated[
        Share, Meta(description="How full the window is when natural moments begin to count.")
    ] = 0.60
    keep_recent_tokens: Annotated[
        int, Meta(ge=0, description="How many tokens of the latest messages are carried over word for word.")
    ] = 20000
    summary_tokens: Annotated[
        PositiveInt, Meta(description="How long a summary should be, in tokens; it is cut at twice that.")
    ] = 2000
    summary_seconds: Annotated[
        PositiveInt, Meta(description="How many seconds one call for a summary may take before it is ended.")
    ] = 300
    evidence_tokens: Annotated[
        int, Meta(ge=0, description="How many tokens of evidence (facts built by code) are carried over.")
    ] = 4000
    pin_tokens: Annotated[
        int,
        Meta(ge=0, description="How many tokens all pins together may take; at most 5% of the window."),
    ] = 2000
    model: Annotated[
        str, Meta(description="The model that writes summaries; empty: the model of the conversation.")
    ] = ""
    review: Annotated[
        Literal["never", "ask"], Meta(description="Whether the app shows a summary before it is used.")
    ] = "never"
    status_placement: Annotated[
        Literal["auto", "message", "append"],
        Meta(
            description="Where the context status goes: a message of its own, the end of the last message, "
            "or whichever the provider takes (auto)."
        ),
    ] = "auto"


class Tasks(Data, frozen=True):
    """How the work of sub-agents comes back."""

    context_strategy: Annotated[
        Literal["full", "summarized"],
        Meta(description="Whether a task's result reaches its caller whole or as a short summary."),
    ] = "full"


class PermissionSettings(Data, frozen=True):
    """What tools may do. The lists of all layers are joined; deny beats ask beats allow."""

    allow: Annotated[tuple[str, ...], Meta(description="Rules for what runs without a question.")] = ()
    ask: Annotated[tuple[str, ...], Meta(description="Rules for what always asks.")] = ()
    deny: Annotated[tuple[str, ...], Meta(description="Rules for what never runs.")] = ()
    mode: Annotated[
        Mode,
        Meta(
            description="How a conversation begins: ask before changes, edits (allowed in the workspace), "
            "or plan (nothing but reading). A project may only make it stricter."
        ),
    ] = "ask"
    private_hosts: Annotated[
        bool, Meta(description="Whether fetch may reach loopback and private addresses.")
    ] = False


class SandboxSettings(Data, frozen=True):
    """What commands of the agent get to see, and what holds them."""

    mode: Annotated[
        Literal["on", "off"],
        Meta(description="Whether the agent's commands run in a sandbox, where one works."),
    ] = "on"
    processes: Annotated[
        PositiveInt, Meta(description="How many processes one command may have in the sandbox.")
    ] = 4000
    memory_mb: Annotated[
        int,
        Meta(
            ge=0, description="How much memory one command may use, in MB; 0: nine tenths of the machine's."
        ),
    ] = 0
    file_mb: Annotated[
        PositiveInt, Meta(description="How large a file a command may write in the sandbox, in MB.")
    ] = 20000
    env: Annotated[
        tuple[str, ...],
        Meta(description="Variables that commands get beside the usual ones: names, or patterns as MYAPP_*."),
    ] = ()
    network: Annotated[
        tuple[str, ...],
        Meta(
            description="Hosts that commands in the sandbox may reach: names, *.name for all below it, or *."
        ),
    ] = ()
    write: Annotated[
        tuple[str, ...],
        Meta(description="Folders outside the workspace that commands in the sandbox may change."),
    ] = ()
    auto_allow: Annotated[
        bool,
        Meta(
            description="Whether commands that only read or build inside the sandbox run without a question."
        ),
    ] = True


class UndoSettings(Data, frozen=True):
    """What is kept so that changes to files can be taken back."""

    max_file_mb: Annotated[
        PositiveInt, Meta(description="A larger file is not kept, so its changes cannot be taken back.")
    ] = 10
    max_mb: Annotated[
        PositiveInt, Meta(description="How much is kept in all; what was kept first goes first.")
    ] = 500
    shell: Annotated[
        Literal["auto", "on", "off"],
        Meta(
            description="Whether changes by commands can be taken back; auto: unless the workspace has more "
            "than undo.max_files files."
        ),
    ] = "auto"
    max_files: Annotated[
        PositiveInt,
        Meta(description="With more files in the workspace, changes by commands are not looked for."),
    ] = 50_000


class ModelSettings(Data, frozen=True):
    """What is known about one model; goes before the catalog."""

    context_window: Annotated[PositiveInt | None, Meta(description="Size of its window in tokens.")] = None
    max_output_tokens: Annotated[
        PositiveInt | None, Meta(description="The most tokens it may write in one reply.")
    ] = None
    input_cost: Annotated[Cost | None, Meta(description="Price of a million input tokens in US dollars.")] = (
        None
    )
    output_cost: Annotated[
        Cost | None, Meta(description="Price of a million output tokens in US dollars.")
    ] = None
    images: Annotated[bool | None, Meta(description="Whether it can look at pictures.")] = None
    threshold: Annotated[
        Threshold | None, Meta(description="Goes before compaction.threshold for this model.")
    ] = None
    status_placement: Annotated[
        Literal["message", "append"] | None,
        Meta(description="Where this model takes the context status; unset: as was learnt of its server."),
    ] = None


class ProviderSettings(Data, frozen=True):
    """How to reach one provider."""

    api_base: Annotated[str, Meta(description="Address of its API; empty: the provider's usual one.")] = ""
    api_key_env: Annotated[
        VariableName,
        Meta(description="Name of the environment variable that holds its key (never the key itself)."),
    ] = ""
    protocol: Annotated[
        Literal["auto", "chat", "responses", "anthropic", "gemini", "litellm"],
        Meta(description="What is spoken at its address; auto: what the provider is known to speak."),
    ] = "auto"


if TYPE_CHECKING:

    class Keys(Data, frozen=True):
        """Keys of the app's commands, as Textual names them (ctrl+r, f5); empty: the usual one."""

else:  # made from the command table, so that no command lacks its setting
    Keys = msgspec.defstruct(
        "Keys",
        [
            (command.action, Annotated[str, Meta(description=f"Key for {command.title}.")], "")
            for command in APP_COMMANDS
        ],
        bases=(Data,),
        module=__name__,
        frozen=True,
    )


class Settings(Data, frozen=True):
    """What the user chose, all layers taken together."""

    model: Annotated[
        str, Meta(description="The model to talk to, named as litellm names it; empty: crushpy picks one.")
    ] = ""
    small_model: Annotated[
        str, Meta(description="The model for small work such as titles; empty: the main model.")
    ] = ""
    provider: Annotated[
        Literal["auto", "litellm"],
        Meta(description="auto: a wire of our own where there is one; litellm: every request through it."),
    ] = "auto"
    effort: Annotated[
        Literal["", "low", "medium", "high"],
        Meta(description="How hard a reasoning model should think; empty: the model's own default."),
    ] = ""
    database_url: Annotated[
        str,
        Meta(
            description="Where sessions are stored: sqlite:///FILE or postgresql://user@host/database; "
            "empty: crushpy.db."
        ),
    ] = ""
    theme: Annotated[
        str,
        Meta(description="Colours of the app; empty: the one of crushpy that fits the terminal."),
    ] = ""
    welcome: Annotated[
        Literal["show", "hide"],
        Meta(description="Whether the app greets with a line about the built-in demo; Esc there hides it."),
    ] = "show"
    queue: Annotated[
        Literal["turn", "step"],
        Meta(
            description="When a prompt goes out that was typed while the agent works: at the end of its "
            "turn, or with its next step."
        ),
    ] = "turn"
    editing: Annotated[
        Literal["plain", "vim"],
        Meta(description="Whose keys edit the prompt; with vim, Esc goes from inserting to commands."),
    ] = "plain"
    compaction: Compaction = Compaction()
    tasks: Tasks = Tasks()
    permissions: PermissionSettings = PermissionSettings()
    sandbox: SandboxSettings = SandboxSettings()
    undo: UndoSettings = UndoSettings()
    models: dict[str, ModelSettings] = msgspec.field(default_factory=dict[str, ModelSettings])
    providers: dict[str, ProviderSettings] = msgspec.field(default_factory=dict[str, ProviderSettings])
    keys: Keys = Keys()
