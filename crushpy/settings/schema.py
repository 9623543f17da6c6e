"""Every setting: its type, default and description.

This is the only definition: validation, errors, `config list` and docs/settings.md are derived from it.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

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
    """When a session is compacted, and what its child keeps."""

    method: Annotated[
        Literal["auto", "llm"],
        Meta(description="Who decides when to compact: crushpy (`auto`) or the model (`llm`)."),
    ] = "auto"
    threshold: Annotated[
        Threshold,
        Meta(description='With `auto`: how full the window is when crushpy compacts; "off": on overflow.'),
    ] = DEFAULT_THRESHOLD
    fallback_threshold: Annotated[
        Share,
        Meta(description="With `llm`: how full the window is when crushpy compacts if the model has not."),
    ] = 0.90
    prepare: Annotated[
        bool,
        Meta(
            description="With `auto`: prepare the summary in the background when the window is nearly full."
        ),
    ] = True
    moments: Annotated[
        bool,
        Meta(
            description="Let natural moments (a todo done, a commit, passing tests, a new prompt) trigger "
            "compaction early; with `llm`, the status names them."
        ),
    ] = True
    soft_threshold: Annotated[
        Share, Meta(description="How full the window is before natural moments count.")
    ] = 0.60
    keep_recent_tokens: Annotated[
        int, Meta(ge=0, description="Tokens of the most recent messages to keep verbatim.")
    ] = 20000
    summary_tokens: Annotated[
        PositiveInt, Meta(description="Target length of a summary in tokens; truncated at twice that.")
    ] = 2000
    summary_seconds: Annotated[
        PositiveInt, Meta(description="Timeout of one summary request in seconds.")
    ] = 300
    evidence_tokens: Annotated[
        int, Meta(ge=0, description="Tokens of evidence (facts collected by code) to keep.")
    ] = 4000
    pin_tokens: Annotated[
        int,
        Meta(ge=0, description="Tokens of all pins together; at most 5% of the window."),
    ] = 2000
    rule_tokens: Annotated[
        int,
        Meta(ge=0, description="Tokens of all standing rules together; at most 5% of the window."),
    ] = 1500
    model: Annotated[
        str, Meta(description="The model that writes summaries; empty: the conversation's model.")
    ] = ""
    summarizer: Annotated[
        Literal["model", "vendor"],
        Meta(
            description="Who writes summaries: a model that gets the transcript (`model`), or the "
            "conversation's model from its own context (`vendor`, newest Claude models only)."
        ),
    ] = "model"
    review: Annotated[
        Literal["never", "ask"],
        Meta(description="Show a summary before it is used, to accept, edit or decline."),
    ] = "never"
    status_placement: Annotated[
        Literal["auto", "message", "append"],
        Meta(
            description="With `llm`: send the context status as a `message` of its own, `append` it to the "
            "last message, or do what the provider supports (`auto`)."
        ),
    ] = "auto"


class Tasks(Data, frozen=True):
    """How the results of sub-agents are returned."""

    context_strategy: Annotated[
        Literal["full", "summarized"],
        Meta(description="Return a task's result in full or as a short summary."),
    ] = "full"


class FleetSettings(Data, frozen=True):
    """Task lists on several machines."""

    wait: Annotated[
        PositiveInt, Meta(description="Seconds after which a task that no worker can take fails.")
    ] = 600
    max_bundle_mb: Annotated[
        PositiveInt, Meta(description="Largest bundle of code that is sent to workers, in MB.")
    ] = 200


class WorktreeSettings(Data, frozen=True):
    """Checkouts of tasks."""

    setup: Annotated[
        str,
        Meta(
            description="Command that prepares the worktree of a task, in the sandbox. A trusted project's "
            "is run once you have accepted it with `crushpy trust`."
        ),
    ] = ""


class PermissionSettings(Data, frozen=True):
    """What tools may do. The lists of all layers are combined; deny beats ask beats allow."""

    allow: Annotated[tuple[str, ...], Meta(description="Rules for calls that run without asking.")] = ()
    ask: Annotated[tuple[str, ...], Meta(description="Rules for calls that always ask.")] = ()
    deny: Annotated[tuple[str, ...], Meta(description="Rules for calls that never run.")] = ()
    mode: Annotated[
        Mode,
        Meta(
            description="Initial mode: `ask` before changes, allow `edits` in the workspace, or `plan` (read "
            "only). A project may only make it stricter."
        ),
    ] = "ask"
    private_hosts: Annotated[bool, Meta(description="Let `fetch` reach loopback and private addresses.")] = (
        False
    )


class SandboxSettings(Data, frozen=True):
    """What the agent's commands can access, and their limits."""

    mode: Annotated[
        Literal["on", "off"],
        Meta(description="Run the agent's commands in a sandbox if the system supports one."),
    ] = "on"
    processes: Annotated[PositiveInt, Meta(description="Maximum number of processes of one command.")] = 4000
    memory_mb: Annotated[
        int,
        Meta(ge=0, description="Maximum memory of one command in MB; 0: 90% of the machine's."),
    ] = 0
    file_mb: Annotated[
        PositiveInt, Meta(description="Maximum size of a file that a command writes, in MB.")
    ] = 20000
    env: Annotated[
        tuple[str, ...],
        Meta(description="Additional environment variables for commands: names or patterns such as MYAPP_*."),
    ] = ()
    network: Annotated[
        tuple[str, ...],
        Meta(description="Hosts that commands may reach: names, *.name for subdomains, or *."),
    ] = ()
    write: Annotated[
        tuple[str, ...],
        Meta(description="Folders outside the workspace that commands may write to."),
    ] = ()
    read: Annotated[
        tuple[str, ...],
        Meta(description="Files and folders that commands may read although they are hidden by default."),
    ] = ()
    own_code: Annotated[
        Literal["read-only", "writable"],
        Meta(description="Whether commands may change crushpy's own code and Python environment."),
    ] = "read-only"
    auto_allow: Annotated[
        bool,
        Meta(description="Run sandboxed commands that only read or build without asking."),
    ] = True


class UndoSettings(Data, frozen=True):
    """What is stored so that file changes can be undone."""

    max_file_mb: Annotated[PositiveInt, Meta(description="Changes to larger files cannot be undone.")] = 10
    max_mb: Annotated[
        PositiveInt, Meta(description="Disk space for undo in MB; the oldest data is removed first.")
    ] = 500
    shell: Annotated[
        Literal["auto", "on", "off"],
        Meta(
            description="Undo changes made by commands; `auto`: unless the workspace has more than "
            "`undo.max_files` files."
        ),
    ] = "auto"
    max_files: Annotated[
        PositiveInt,
        Meta(
            description="In larger workspaces (ignored files excluded) changes by commands are not tracked."
        ),
    ] = 50_000


class ModelSettings(Data, frozen=True):
    """Facts about one model; they override the catalog."""

    context_window: Annotated[
        PositiveInt | None, Meta(description="Size of the context window in tokens.")
    ] = None
    max_output_tokens: Annotated[PositiveInt | None, Meta(description="Maximum tokens of one reply.")] = None
    input_cost: Annotated[Cost | None, Meta(description="US dollars per million input tokens.")] = None
    output_cost: Annotated[Cost | None, Meta(description="US dollars per million output tokens.")] = None
    images: Annotated[bool | None, Meta(description="Whether the model accepts images.")] = None
    threshold: Annotated[
        Threshold | None, Meta(description="Overrides `compaction.threshold` for this model.")
    ] = None
    status_placement: Annotated[
        Literal["message", "append"] | None,
        Meta(description="Overrides `compaction.status_placement`; unset: as learnt from its server."),
    ] = None


class ProviderSettings(Data, frozen=True):
    """How to reach one provider."""

    api_base: Annotated[str, Meta(description="URL of the API; empty: the provider's default.")] = ""
    api_key_env: Annotated[
        VariableName,
        Meta(description="Name of the environment variable that holds the key, never the key itself."),
    ] = ""
    protocol: Annotated[
        Literal["auto", "chat", "responses", "anthropic", "gemini", "ollama", "litellm"],
        Meta(description="Protocol of the server; `auto`: the provider's own, else OpenAI chat."),
    ] = "auto"


class StatusLine(Data, frozen=True):
    """A line of the user's own in the status bar."""

    command: Annotated[
        str,
        Meta(
            description="A shell command whose first line of output the status bar shows; it gets the state "
            "as JSON on its input and has 300 ms. Only in your own settings."
        ),
    ] = ""


class McpTools(Data, frozen=True):
    """Which tools of a server are offered; names may contain `*`."""

    allow: Annotated[tuple[str, ...], Meta(description="Only these tools are offered; empty: all.")] = ()
    deny: Annotated[tuple[str, ...], Meta(description="Tools that are not offered.")] = ()


class McpOAuth(Data, frozen=True):
    """How `crushpy mcp login` logs in to a server."""

    client_id: Annotated[str, Meta(description="The registered client; empty: register one.")] = ""
    client_secret_env: Annotated[
        VariableName, Meta(description="Name of the environment variable that holds the client's secret.")
    ] = ""
    scopes: Annotated[tuple[str, ...], Meta(description="Scopes to ask for; empty: the server's.")] = ()
    client_metadata_url: Annotated[str, Meta(description="URL of the client's metadata document.")] = ""


class McpServerSettings(Data, frozen=True):
    """One MCP server: a command, or a URL."""

    command: Annotated[str, Meta(description="The program that is the server.")] = ""
    args: Annotated[tuple[str, ...], Meta(description="Its arguments.")] = ()
    env: Annotated[
        dict[str, str] | None,
        Meta(description="Further environment variables of it; `${NAME}` is replaced by ours."),
    ] = None
    cwd: Annotated[str, Meta(description="Its working folder; empty: the project's.")] = ""
    url: Annotated[str, Meta(description="The address of a server that speaks streamable HTTP.")] = ""
    headers: Annotated[
        dict[str, str] | None, Meta(description="HTTP headers; `${NAME}` is replaced by a variable.")
    ] = None
    enabled: Annotated[bool, Meta(description="Whether the server is used.")] = True
    timeout: Annotated[float, Meta(gt=0, description="Seconds to wait for one answer.")] = 60.0
    tools: McpTools = McpTools()
    sandbox: Annotated[
        Literal["project", "off"],
        Meta(description="Run the command in the sandbox of the project's commands, or without one."),
    ] = "off"
    network: Annotated[bool, Meta(description="Whether a sandboxed command may use the network.")] = True
    oauth: McpOAuth = McpOAuth()


class LspSettings(Data, frozen=True):
    """Language servers: diagnostics after edits, and the tool `lsp`."""

    headless: Annotated[bool, Meta(description="Use language servers without the app also.")] = False
    wait: Annotated[
        float, Meta(ge=0, description="Seconds that the result of an edit waits for diagnostics.")
    ] = 1.5
    idle: Annotated[float, Meta(gt=0, description="Seconds after which an unused server ends.")] = 300.0
    memory_mb: Annotated[PositiveInt, Meta(description="Maximum memory of one server in MB.")] = 2000
    servers: Annotated[
        dict[str, tuple[str, ...]],
        Meta(
            description="Commands of servers by the endings of files; they replace the built-in ones.",
            extra={"allowed": "a table as in docs/lsp.md"},
        ),
    ] = msgspec.field(default_factory=dict[str, tuple[str, ...]])


if TYPE_CHECKING:

    class Keys(Data, frozen=True):
        """Keys of the app's commands as Textual names them (ctrl+r, f5); empty: the default."""

else:  # derived from the command table, so that every command has a setting
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
    """The effective settings of all layers."""

    model: Annotated[
        str,
        Meta(description="The model, named as in litellm (`openai/gpt-5`); empty: crushpy picks one."),
    ] = ""
    small_model: Annotated[
        str, Meta(description="The model for small requests such as titles; empty: the main model.")
    ] = ""
    provider: Annotated[
        Literal["auto", "litellm"],
        Meta(description="`auto`: the built-in client if there is one; `litellm`: always litellm."),
    ] = "auto"
    effort: Annotated[
        Literal["", "low", "medium", "high"],
        Meta(description="Effort of a reasoning model; empty: the model's default."),
    ] = ""
    web_search: Annotated[
        Literal["off", "on"],
        Meta(
            description="Offer the vendor's own web search (Anthropic, OpenAI Responses, Gemini), which "
            "costs money for each search; a deny or ask rule `web_search` switches it off."
        ),
    ] = "off"
    database_url: Annotated[
        str,
        Meta(
            description="Database: `sqlite:///FILE` or `postgresql://user@host/database`, without a "
            "password; empty: `crushpy.db` in the data folder."
        ),
    ] = ""
    theme: Annotated[
        str,
        Meta(
            description="Theme of the app; empty: crushpy's dark or light one, whichever fits the terminal."
        ),
    ] = ""
    welcome: Annotated[
        Literal["show", "hide"],
        Meta(description="Show the welcome line about the built-in demo; Esc hides it."),
    ] = "show"
    queue: Annotated[
        Literal["turn", "step"],
        Meta(
            description="When to send a prompt typed while the agent works: with its next step, or after "
            "its turn."
        ),
    ] = "step"
    editing: Annotated[
        Literal["plain", "vim"],
        Meta(description="Keys for editing the prompt; with `vim`, Esc switches to normal mode."),
    ] = "plain"
    compaction: Compaction = Compaction()
    tasks: Tasks = Tasks()
    fleet: FleetSettings = FleetSettings()
    worktree: WorktreeSettings = WorktreeSettings()
    permissions: PermissionSettings = PermissionSettings()
    sandbox: SandboxSettings = SandboxSettings()
    undo: UndoSettings = UndoSettings()
    status_line: StatusLine = StatusLine()
    models: dict[str, ModelSettings] = msgspec.field(default_factory=dict[str, ModelSettings])
    providers: dict[str, ProviderSettings] = msgspec.field(default_factory=dict[str, ProviderSettings])
    mcp: dict[str, McpServerSettings] = msgspec.field(default_factory=dict[str, McpServerSettings])
    lsp: LspSettings = LspSettings()
    hooks: Annotated[
        dict[str, Any],
        Meta(description="Commands to run at events.", extra={"allowed": "a table as in docs/hooks.md"}),
    ] = msgspec.field(default_factory=dict[str, Any])
    keys: Keys = Keys()
