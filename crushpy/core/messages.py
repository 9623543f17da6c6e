"""The vocabulary: messages, their parts, and what a model call used.

Everything here is frozen data that round-trips through JSON. It imports no other package.
"""

from collections.abc import Mapping, Sequence
from operator import add, sub
from typing import Any, Literal

import msgspec

Role = Literal["user", "assistant", "tool"]
Json = dict[str, Any]


class Data(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=False):
    """Base of every stored or emitted value."""


# --- what a person sees of a tool's result --------------------------------------------------------------


class Diff(Data, frozen=True, tag="diff"):
    """A change to one file, as unified diff text."""

    path: str
    unified: str
    added: int = 0
    removed: int = 0
    created: bool = False


class Terminal(Data, frozen=True, tag="terminal"):
    """A command and its bounded output."""

    command: str
    output: str
    exit_code: int | None = None
    """None while it runs, or when a signal ended it."""
    seconds: float = 0.0
    note: str = ""
    """Timed out, killed, moved to the background: in words."""
    lines: int = 0
    """The number of lines printed, if `output` does not hold all of them."""


class FileList(Data, frozen=True, tag="files"):
    """Paths (or path:line: text rows) that a search or a listing found."""

    rows: tuple[str, ...]
    total: int = 0
    """How many there were before the list was truncated."""


class Todo(Data, frozen=True):
    text: str
    status: Literal["pending", "in_progress", "completed"] = "pending"


class TodoList(Data, frozen=True, tag="todos"):
    todos: tuple[Todo, ...]


class Excerpt(Data, frozen=True, tag="excerpt"):
    """Some text with a title: a file's lines, a fetched page."""

    title: str
    text: str
    language: str = ""


class TouchedFile(Data, frozen=True):
    """A file that was read or changed. `path` is as the model wrote it, normalised."""

    path: str
    action: str
    """created, edited, written, deleted or read."""


class TaskReport(Data, frozen=True, tag="task"):
    """The full report of a sub-agent, and the files it changed."""

    session_id: str
    text: str
    changed: tuple[TouchedFile, ...] = ()
    steps: int = 0
    cost: float = 0.0

    def __str__(self) -> str:
        words = [counted(self.steps, "step"), *([counted(len(self.changed), "file")] if self.changed else [])]
        return " · ".join([*words, *([f"${self.cost:.2f}"] if self.cost >= 0.005 else [])])


class BranchReport(TaskReport, frozen=True, tag="branch"):
    """What a branch returned and used. `session_id` is the branch, `steps` its model calls."""

    goal: str = ""
    calls: int = 0
    tokens: int = 0
    """Of all its messages."""
    folded: int = 0
    """Tokens that are left of them in the parent."""
    thoughts: int = 0
    """Replies whose signed thinking is no longer sent."""

    def __str__(self) -> str:
        words = f"{counted(self.calls, 'call')}, {short_count(self.tokens)} tokens, folded to "
        return words + short_count(self.folded)


Display = Diff | Terminal | FileList | TodoList | Excerpt | TaskReport | BranchReport


# --- parts of a message --------------------------------------------------------------------------------


Origin = Literal["typed", "editor", "sdk", "fleet", "hook", "agent", "import"]
"""Who wrote a prompt: the user here or in an editor, a program (SDK), a submitter, a hook, the agent or a
task list for a sub-agent, another agent's user."""
BlockOrigin = Literal["pasted", "file"]


class Text(Data, frozen=True, tag="text"):
    text: str
    pasted: tuple[tuple[int, int], ...] = ()
    """Start and end of what is not the user's own words: pasted, piped in, or written by crushpy."""
    origin: Origin = "typed"
    """Of a prompt; those stored without one count as typed."""
    block: BlockOrigin = "pasted"
    """What the parts in `pasted` are: pasted text, or files (also stdin, and those of commands)."""


class ImageInfo(Data, frozen=True):
    """A description of a picture, shown in place of it."""

    media_type: str
    size: int
    """In bytes."""
    name: str = ""
    width: int = 0
    height: int = 0

    def __str__(self) -> str:
        pixels = f"{self.width}x{self.height}" if self.width else ""
        return ", ".join(filter(None, (self.name, self.media_type, pixels, f"{self.size:,} bytes")))


class Image(Data, frozen=True, tag="image"):
    """A picture as it is sent: scaled already, so that it is the same bytes in every request."""

    media_type: str
    data: str
    """Base64."""
    name: str = ""
    """Of its file, clean and on one line."""
    width: int = 0
    """In pixels; 0 if unknown."""
    height: int = 0

    @property
    def info(self) -> ImageInfo:
        size = len(self.data) * 3 // 4 - self.data[-2:].count("=")
        return ImageInfo(self.media_type, size, self.name, self.width, self.height)


BOUND_PREFIX = "prefix"
"""In an opaque part: the digest of everything before the reply, for a model that binds its thinking to it."""


class Thinking(Data, frozen=True, tag="thinking"):
    """What a model thought. `opaque` holds the provider's signed or encrypted form, whole.

    It is sent back only to the model that made it (`Message.model`), and never shortened.
    """

    text: str
    opaque: tuple[Json, ...] = ()
    seconds: int = 0
    """How long it took, in whole seconds."""


class ToolCall(Data, frozen=True, tag="tool_call"):
    """One call that a model asked for. `args` is what the model wrote, before validation."""

    id: str
    name: str
    args: Json = msgspec.field(default_factory=dict[str, Any])
    bad_json: str = ""
    """The argument text if it was not a JSON object; such a call is never run."""
    opaque: Json | None = None
    """Provider data that must travel with the call (Gemini's thought signature)."""


class CallDecision(Data, frozen=True):
    """Whether a call could run, and who decided."""

    verdict: Literal["allowed", "denied", "unasked"]
    """unasked: a question was needed, but no user could be asked."""
    by: Literal["rules", "user", "yolo", "hook"]
    at: float
    """Seconds since the epoch."""
    reason: str = ""
    """By the rules: the one that matches, or what none covers."""
    answer: str = ""
    """The user's answer: once, conversation, always or deny; or how they ended the question."""
    covers: str = ""
    """What that answer covers, in words."""
    words: str = ""
    """With deny: what the user told the agent."""
    sandbox: str = ""
    """The sandbox of a command: bubblewrap, ..., or none; empty if no command was run."""
    mode: str = ""


class ToolResult(Data, frozen=True, tag="tool_result"):
    """The answer to one call: `text` for the model, `display` for a person."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    display: Display | None = None
    decision: CallDecision | None = None
    """None if nothing had to be decided or it was not recorded."""
    ended: Literal["", "interrupted", "not_run"] = ""
    """Interrupted while it ran, or never started; empty if it ended by itself."""
    loaded: tuple[str, ...] = ()
    """What it brought into the context: `skill:NAME`, `rules:PATH`."""
    touched: tuple[TouchedFile, ...] = ()
    """Files that a tool of another agent read or changed; those of ours are known by its name and display."""


class EarlierNote(Data, frozen=True):
    """A point of an earlier summary that later summaries left out."""

    text: str
    age: int
    """In generations."""


class SignedSummary(Data, frozen=True):
    """A summary that the vendor wrote: its model accepts the signed block in place of what it summarises."""

    block: Json
    model: str
    prefix: str
    """The digest of what it replaces; thinking after it stays valid."""
    after: str = ""
    """The last message that is carried verbatim: the rest of the seed follows it."""


class LoadedText(Data, frozen=True):
    """Something that was loaded in an earlier session, as a child receives it."""

    key: str
    """`skill:NAME`, `rules:PATH` or `hook:NAME`."""
    text: str = ""
    """Empty if only its name is carried."""
    whole: bool = True
    """False if the text was shortened."""

    @property
    def kind(self) -> str:
        return self.key.partition(":")[0]

    @property
    def name(self) -> str:
        return self.key.partition(":")[2]


class Seed(Data, frozen=True, tag="seed"):
    """The first message of a session that continues another."""

    summary: str
    """Prose. Empty if no summary could be written."""
    evidence: str
    """Facts, built by code from the stored record."""
    quotes: str = ""
    """The last request and the last answer, if they are not carried as messages."""
    earlier: tuple[EarlierNote, ...] = ()
    """Carried beside a summary that the agent or the user wrote, the newest first."""
    pins: str = ""
    rules: str = ""
    """The user's standing rules, verbatim."""
    signed: SignedSummary | None = None
    loaded: tuple[LoadedText, ...] = ()
    """Skills and nested rules files in use, and the evidence of hooks."""

    @property
    def notes(self) -> str:
        """The summary and the notes beside it: what the next summary updates."""
        points = "".join(f"\n- {note.text}" for note in self.earlier)
        return f"{self.summary}\n\n## Earlier notes\n{points}" if points else self.summary


ATTACHED = "The user attached "
"""Begins the note with a file of a prompt; its path follows."""


class Note(Data, frozen=True, tag="note"):
    """A message from crushpy to the model. Never treated as the user's words."""

    text: str
    about: Literal["", "plan", "plan_over", "rule", "rule_withdrawn"] = ""
    """plan and plan_over: plan mode began or ended. The user sees the mode in the status line. rule and
    rule_withdrawn: the user added or withdrew the standing rule in the lines after the first."""
    branch: BranchReport | None = None
    """The branch of the user's that returned with this note."""
    origin: Origin | Literal["", "file"] = ""
    """Who had crushpy say it, if it was not the user or crushpy itself; `file`: a file that the user
    attached, with its path in the first line."""


Part = Text | Image | Thinking | ToolCall | ToolResult | Seed | Note


class Usage(Data, frozen=True, omit_defaults=False):
    """Tokens of one model call as the provider reported them, and what they cost in US dollars.

    `input_tokens` counts what was neither read from nor written to the cache.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float = 0.0
    hour_write_tokens: int = 0
    """Of the cache writes: those kept for an hour instead of minutes, which cost more."""

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(*map(sub, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*map(add, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


Finish = Literal["", "stop", "tool_calls", "length", "content_filter", "interrupted"]


class SentStatus(Data, frozen=True):
    """A context status, or a change of the tools, as a request sent it.

    It stays in every later request of its session for models that bind their thinking to what precedes it.
    """

    message_id: str
    """The user message or tool result that it follows."""
    text: str = ""
    added: tuple[Json, ...] = ()
    """Tools offered from here on: a definition, or only a name if the tool is among the request's tools."""
    removed: tuple[str, ...] = ()
    """Names of tools no longer offered from here on."""


class Message(Data, frozen=True):
    """One message of a session.

    A user's message holds Text and Image (or a Seed, or a Note), an assistant's Text, Thinking and
    ToolCall, and a tool message holds exactly one ToolResult.
    """

    id: str
    role: Role
    parts: tuple[Part, ...]
    created_at: float = 0.0
    """Seconds since the epoch."""
    model: str = ""
    """Which model wrote it (assistant messages)."""
    usage: Usage | None = None
    finish: Finish = ""
    tokens: int = 0
    """Our count of this message; 0 if it was not counted yet."""

    @property
    def text(self) -> str:
        """All its text parts, without thinking, calls and results."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def pasted(self) -> tuple[tuple[int, int], ...]:
        """Start and end, in `text`, of what is not the user's own words."""
        return next((part.pasted for part in self.parts if isinstance(part, Text)), ())

    @property
    def origin(self) -> Origin:
        """Of a prompt: who wrote it."""
        origins: list[Origin] = [part.origin for part in self.parts if isinstance(part, Text)]
        return origins[0] if origins else "typed"

    @property
    def has_bound_thinking(self) -> bool:
        """Whether its model accepts it only after an unchanged prefix."""
        thoughts = (part for part in self.parts if isinstance(part, Thinking))
        return any(BOUND_PREFIX in block for thought in thoughts for block in thought.opaque)

    @property
    def says_something(self) -> bool:
        """Whether its prose is not blank."""
        return any(not part.text.isspace() for part in self.parts if isinstance(part, Text) and part.text)

    @property
    def length(self) -> int:
        """Characters of its prose."""
        return sum(len(part.text) for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def images(self) -> tuple[Image, ...]:
        """Every picture in it, the user's own and those of a tool's result."""
        own = [part for part in self.parts if isinstance(part, Image)]
        return (*own, *(self.result.images if self.result is not None else ()))

    @property
    def seed(self) -> Seed | None:
        """What it carries from an earlier session, if it is the first of one that continues another."""
        return next((part for part in self.parts if isinstance(part, Seed)), None)

    @property
    def reports(self) -> list[TaskReport]:
        """Of the tasks and branches that it tells the result of."""
        told = [part.display for part in self.parts if isinstance(part, ToolResult)]
        told += [part.branch for part in self.parts if isinstance(part, Note)]
        return [report for report in told if isinstance(report, TaskReport)]

    @property
    def result(self) -> ToolResult | None:
        for part in self.parts:
            if isinstance(part, ToolResult):
                return part
        return None


class Pin(Data, frozen=True, omit_defaults=False):
    """Text or a file that the user wants carried across every boundary of a conversation."""

    number: int
    """Its name in the conversation: 1, 2, 3, ..."""
    kind: Literal["text", "file", "message"]
    text: str = ""
    """A sentence, or what the message says; a file is read at the boundary."""
    source: str = ""
    """The file in full, or the message's id."""
    created_at: float = 0.0


class MessageOverride(Data, frozen=True):
    """A record beside a stored message: how requests show it from now on. The message itself is unchanged."""

    message_id: str
    head: int = 1_500
    """Characters kept of its beginning."""
    tail: int = 500
    """Characters kept of its end."""
    kind: Literal["fit", "shorten", "drop", "remove", "withdraw", "restore", "renew"] = "fit"
    """Sent shortened, because of the window's size (fit) or as the user wants it; left out, with a line in
    its place (remove), or because it was never answered (withdraw); restored; a seed without what came from
    messages that were edited since (renew)."""
    made_after: str = ""
    """The last message when it was made: usage reports up to it describe another request."""
    text: str = ""
    """Of a renewed seed: the seed, as JSON."""


Overrides = Mapping[str, MessageOverride]
"""By the id of the message."""


_TELLING = ("goal", "command", "file_path", "pattern", "url", "query", "path", "job_id", "message_id")
MAX_HEADLINE_CHARS = 120


def headline(name: str, args: Json, *, more: str = "") -> str:
    """A call in one line: its most informative argument. `more` is appended if that has several lines."""
    if name == "todos":
        return counted(len(args.get("todos") or ()), "item")
    for key in (*_TELLING, "prompt", "description", "name"):
        lines = str(args.get(key) or "").strip().splitlines()
        if lines:
            line = lines[0] + (more if len(lines) > 1 else "")
            return shortened(line, MAX_HEADLINE_CHARS)
    return ""


def shortened(text: str, limit: int) -> str:
    """The text, with an ellipsis as the last of `limit` characters if it is longer."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def first_names(names: Sequence[str], limit: int) -> str:
    """At most `limit` of the names, and how many more there are."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def counted(number: int, word: str) -> str:
    """A number with its noun: 1 line, 1,200 lines."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def short_count(number: int) -> str:
    """240, 1.2k, 31k, 1M."""
    if number < 1_000:
        return str(number)
    if number >= 1_000_000:
        return f"{number / 1_000_000:.1f}".removesuffix(".0") + "M"
    return f"{number / 1_000:.1f}k" if number < 10_000 else f"{number // 1_000}k"
