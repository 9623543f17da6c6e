"""Every setting: its type, default and description, which is the docstring below the field.

This is the only definition: validation, errors, `config list` and docs/settings.md are derived from it.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from crushpy.core.access import Mode
from crushpy.core.app_commands import APP_COMMANDS
from crushpy.core.defaults import DEFAULT_THRESHOLD
from crushpy.core.messages import Data
from crushpy.util.mentions import MAX_LINES, MAX_TOKENS

PositiveInt = Annotated[int, Meta(gt=0)]
NonNegativeInt = Annotated[int, Meta(ge=0)]
PositiveFloat = Annotated[float, Meta(gt=0)]
NonNegativeFloat = Annotated[float, Meta(ge=0)]
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

Profile = Literal["full", "small", "extended"]
BUDGET_PATTERN = r"\A(?:(?P<number>\d+(?:\.\d+)?)(?P<unit>usd|k|m)?)?\Z"
BUDGET_FORMS = "US dollars, such as 5usd, or tokens, such as 200k"
BudgetAmount = Annotated[str, Meta(pattern=BUDGET_PATTERN, extra={"allowed": f"an amount in {BUDGET_FORMS}"})]


class BudgetSettings(Data, frozen=True):
    """What may be spent before crushpy asks: US dollars (`5usd`) or tokens (`200k`)."""

    conversation: BudgetAmount = ""
    """Budget of a conversation with its sub-agents, branches and tasks; empty: none."""
    project_day: BudgetAmount = ""
    """Budget of all conversations of a project on one day; empty: none."""


class Compaction(Data, frozen=True):
    """When a session is compacted, and what its child keeps."""

    method: Literal["auto", "llm"] = "auto"
    """Who decides when to compact: crushpy (`auto`) or the model (`llm`)."""
    threshold: Threshold = DEFAULT_THRESHOLD
    """With `auto`: how full the window is when crushpy compacts; "off": on overflow."""
    fallback_threshold: Share = 0.90
    """With `llm`: how full the window is when crushpy compacts if the model has not."""
    prepare: bool = True
    """With `auto`: prepare the summary in the background when the window is nearly full."""
    moments: bool = True
    """Let natural moments (a todo done, a commit, passing tests, a new prompt) trigger compaction early; with
    `llm`, the status names them."""
    soft_threshold: Share = 0.60
    """How full the window is before natural moments count."""
    carry: Literal["lean", "normal", "full"] = "full"
    """How much a child starts with: about 3,000 tokens (`lean`), 8,000 (`normal`) or 24,000 (`full`)."""
    keep_recent_tokens: NonNegativeInt | None = None
    """Tokens of the most recent messages to keep verbatim; unset: 1,000, 5,000 or 20,000, by `carry`."""
    summary_tokens: PositiveInt = 2000
    """Target length of a summary in tokens; truncated at twice that."""
    summary_seconds: PositiveInt = 300
    """Timeout of one summary request in seconds."""
    evidence_tokens: NonNegativeInt | None = None
    """Tokens of evidence (facts collected by code) to keep; unset: 2,000, 3,000 or 4,000, by `carry`."""
    pin_tokens: NonNegativeInt = 2000
    """Tokens of all pins together; at most 5% of the window."""
    rule_tokens: NonNegativeInt = 1500
    """Tokens of all standing rules together; at most 5% of the window."""
    model: str = ""
    """The model that writes summaries; empty: the conversation's model."""
    summarizer: Literal["model", "vendor"] = "model"
    """Who writes summaries: a model that gets the transcript (`model`), or the conversation's model from its
    own context (`vendor`, newest Claude models only)."""
    review: Literal["never", "ask"] = "never"
    """Show a summary before it is used, to accept, edit or decline."""
    status_placement: Literal["auto", "message", "append"] = "auto"
    """With `llm`: send the context status as a `message` of its own, `append` it to the last message, or do
    what the provider supports (`auto`)."""


class Tasks(Data, frozen=True):
    """How the results of sub-agents are returned."""

    context_strategy: Literal["full", "summarized"] = "full"
    """Return a task's result in full or as a short summary."""


class FleetSettings(Data, frozen=True):
    """Task lists on several machines."""

    wait: PositiveInt = 600
    """Seconds after which a task that no worker can take fails, and after which a question without an answer
    is denied if the submitter has no terminal."""
    max_bundle_mb: PositiveInt = 200
    """Largest bundle of code that is sent to workers, in MB."""


class WorktreeSettings(Data, frozen=True):
    """Checkouts of tasks."""

    setup: str = ""
    """Command that prepares the worktree of a task, in the sandbox. A trusted project's is run once you have
    accepted it with `crushpy trust`."""


class PermissionSettings(Data, frozen=True):
    """What tools may do. The lists of all layers are combined; deny beats ask beats allow."""

    allow: tuple[str, ...] = ()
    """Rules for calls that run without asking."""
    ask: tuple[str, ...] = ()
    """Rules for calls that always ask."""
    deny: tuple[str, ...] = ()
    """Rules for calls that never run."""
    mode: Mode = "ask"
    """Initial mode: `ask` before changes, allow `edits` in the workspace, or `plan` (read only). A project
    may only make it stricter."""
    private_hosts: bool = False
    """Let `fetch` reach loopback and private addresses."""


class SandboxSettings(Data, frozen=True):
    """What the agent's commands can access, and their limits."""

    mode: Literal["on", "off"] = "on"
    """Run the agent's commands in a sandbox if the system supports one."""
    processes: PositiveInt = 4000
    """Maximum number of processes of one command."""
    memory_mb: NonNegativeInt = 0
    """Maximum memory of one command in MB; 0: 90% of the machine's."""
    file_mb: PositiveInt = 20000
    """Maximum size of a file that a command writes, in MB."""
    env: tuple[str, ...] = ()
    """Additional environment variables for commands: names or patterns such as MYAPP_*."""
    network: tuple[str, ...] = ()
    """Hosts that commands may reach: names, *.name for subdomains, or *."""
    write: tuple[str, ...] = ()
    """Folders outside the workspace that commands may write to."""
    read: tuple[str, ...] = ()
    """Files and folders that commands may read although they are hidden by default."""
    own_code: Literal["read-only", "writable"] = "read-only"
    """Whether commands may change crushpy's own code and Python environment."""
    auto_allow: bool = True
    """Run sandboxed commands that only read or build without asking."""


class UndoSettings(Data, frozen=True):
    """What is stored so that file changes can be undone."""

    max_file_mb: PositiveInt = 10
    """Changes to larger files cannot be undone."""
    max_mb: PositiveInt = 500
    """Disk space for undo in MB; the oldest data is removed first."""
    shell: Literal["auto", "on", "off"] = "auto"
    """Undo changes made by commands; `auto`: unless the workspace has more than `undo.max_files` files."""
    max_files: PositiveInt = 50_000
    """In larger workspaces (ignored files excluded) changes by commands are not tracked."""


class ModelSettings(Data, frozen=True):
    """Facts about one model; they override the catalog."""

    context_window: PositiveInt | None = None
    """Size of the context window in tokens."""
    max_output_tokens: PositiveInt | None = None
    """Maximum tokens of one reply."""
    input_cost: Cost | None = None
    """US dollars per million input tokens."""
    output_cost: Cost | None = None
    """US dollars per million output tokens."""
    images: bool | None = None
    """Whether the model accepts images."""
    threshold: Threshold | None = None
    """Overrides `compaction.threshold` for this model."""
    status_placement: Literal["message", "append"] | None = None
    """Overrides `compaction.status_placement`; unset: as learnt from its server."""
    profile: Profile | None = None
    """Overrides `profile` for this model."""
    text_calls: bool | None = None
    """Whether tool calls that the model writes into its text are run; unset: if its server is local."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    """How much chance there is in its words, with OpenAI's chat protocol and Ollama's; unset: 0.2 for a small
    window on this machine, else as the server does."""


class ProviderSettings(Data, frozen=True):
    """How to reach one provider."""

    api_base: str = ""
    """URL of the API; empty: the provider's default."""
    api_key_env: VariableName = ""
    """Name of the environment variable that holds the key, never the key itself."""
    protocol: Literal["auto", "chat", "responses", "anthropic", "gemini", "ollama", "litellm"] = "auto"
    """Protocol of the server; `auto`: the provider's own, else OpenAI chat."""
    timeout_s: PositiveFloat | None = None
    """Seconds that the server may be silent; unset: 300 before a reply and 120 within it, without a limit if
    it is on this machine."""


class StatusLine(Data, frozen=True):
    """A line of the user's own in the status bar."""

    command: str = ""
    """A shell command whose first line of output the status bar shows; it gets the state as JSON on its input
    and has 300 ms. Only in your own settings."""


class AttachSettings(Data, frozen=True):
    """Text files that a prompt mentions as `@file`."""

    max_lines: Annotated[int, Meta(ge=0)] = MAX_LINES
    """A file with at most this many lines goes with the prompt; of a larger one, only its path. 0: none."""
    max_tokens: Annotated[int, Meta(ge=0)] = MAX_TOKENS
    """The same in tokens, estimated as a quarter of its bytes."""


class McpTools(Data, frozen=True):
    """Which tools of a server are offered; names may contain `*`."""

    allow: tuple[str, ...] = ()
    """Only these tools are offered; empty: all."""
    deny: tuple[str, ...] = ()
    """Tools that are not offered."""


class McpOAuth(Data, frozen=True):
    """How `crushpy mcp login` logs in to a server."""

    client_id: str = ""
    """The registered client; empty: register one."""
    client_secret_env: VariableName = ""
    """Name of the environment variable that holds the client's secret."""
    scopes: tuple[str, ...] = ()
    """Scopes to ask for; empty: the server's."""
    client_metadata_url: str = ""
    """URL of the client's metadata document."""


class McpServerSettings(Data, frozen=True):
    """One MCP server: a command, or a URL."""

    command: str = ""
    """The program that is the server."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: dict[str, str] | None = None
    """Further environment variables of it; `${NAME}` is replaced by ours."""
    cwd: str = ""
    """Its working folder; empty: the project's."""
    url: str = ""
    """The address of a server that speaks streamable HTTP."""
    headers: dict[str, str] | None = None
    """HTTP headers; `${NAME}` is replaced by a variable."""
    enabled: bool = True
    """Whether the server is used."""
    timeout: PositiveFloat = 60.0
    """Seconds to wait for one answer."""
    tools: McpTools = McpTools()
    sandbox: Literal["project", "off"] = "off"
    """Run the command in the sandbox of the project's commands, or without one."""
    network: bool = True
    """Whether a sandboxed command may use the network."""
    oauth: McpOAuth = McpOAuth()


class LspSettings(Data, frozen=True):
    """Language servers: diagnostics after edits, and the tool `lsp`."""

    headless: bool = False
    """Use language servers without the app also."""
    wait: NonNegativeFloat = 1.5
    """Seconds that the result of an edit waits for diagnostics."""
    idle: PositiveFloat = 300.0
    """Seconds after which an unused server ends."""
    memory_mb: PositiveInt = 2000
    """Maximum memory of one server in MB."""
    servers: Annotated[dict[str, tuple[str, ...]], Meta(extra={"allowed": "a table as in docs/lsp.md"})] = (
        msgspec.field(default_factory=dict[str, tuple[str, ...]])
    )
    """Commands of servers by the endings of files; they replace the built-in ones."""


if TYPE_CHECKING:

    class Keys(Data, frozen=True):
        """Keys of the app's commands as Textual names them (ctrl+r, f5); empty: the default."""

else:  # derived from the command table, so that every command has a setting
    Keys = msgspec.defstruct(
        "Keys",
        [(command.action, str, "") for command in APP_COMMANDS],
        bases=(Data,),
        module=__name__,
        frozen=True,
    )


class Settings(Data, frozen=True):
    """The effective settings of all layers."""

    model: str = ""
    """The model, named as in litellm (`openai/gpt-5`); empty: crushpy picks one."""
    small_model: str = ""
    """The model for small requests such as titles; empty: the main model."""
    provider: Literal["auto", "litellm"] = "auto"
    """`auto`: the built-in client if there is one; `litellm`: always litellm."""
    profile: Profile | Literal["auto"] = "auto"
    """What a model is offered: `full`; `small` (a short system prompt, few tools, short results); `extended`
    (small, with your MCP servers, skills and language servers); `auto`: `small` if its window has at most
    32,768 tokens."""
    effort: Literal["", "low", "medium", "high"] = ""
    """Effort of a reasoning model; empty: the model's default."""
    web_search: Literal["off", "on"] = "off"
    """Offer the vendor's own web search (Anthropic, OpenAI Responses, Gemini), which costs money for each
    search; a deny or ask rule `web_search` switches it off."""
    database_url: str = ""
    """Database: `sqlite:///FILE` or `postgresql://user@host/database`, without a password; empty:
    `crushpy.db` in the data folder."""
    theme: str = ""
    """Theme of the app; empty: crushpy's dark or light one, whichever fits the terminal."""
    welcome: Literal["show", "hide"] = "show"
    """Show the welcome line about the built-in demo; Esc hides it."""
    queue: Literal["turn", "step"] = "step"
    """When to send a prompt typed while the agent works: with its next step, or after its turn."""
    editing: Literal["plain", "vim"] = "plain"
    """Keys for editing the prompt; with `vim`, Esc switches to normal mode."""
    attach: AttachSettings = AttachSettings()
    compaction: Compaction = Compaction()
    tasks: Tasks = Tasks()
    budget: BudgetSettings = BudgetSettings()
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
    hooks: Annotated[dict[str, Any], Meta(extra={"allowed": "a table as in docs/hooks.md"})] = msgspec.field(
        default_factory=dict[str, Any]
    )
    """Commands to run at events."""
    keys: Keys = Keys()
