"""The events of the engine: frozen data, one JSON object each, `type` first.

Every front end consumes this one stream. An event is emitted only after its record is stored; `text`,
`thinking` and `tool_output` are live pieces of something that is stored a moment later. Each docstring says
what comes before and after; `tests/support/event_order.py` checks every recorded run against it.
"""

from collections.abc import Callable
from typing import Any, Literal

from crushpy.core.access import Access, AnswerChoice, Mode
from crushpy.core.boundary import Boundary, CompactionTrigger, PreparationState, StoredBoundary, carried_share
from crushpy.core.messages import (
    BranchReport,
    CallDecision,
    Data,
    Display,
    ImageInfo,
    Seed,
    Todo,
    ToolResult,
    Usage,
    counted,
    short_count,
)


class Event(Data, frozen=True, tag_field="type", omit_defaults=False):
    """Base of all events."""


Emit = Callable[[Event], None]
"""Passes an event on to a front end."""


class SessionOpened(Event, frozen=True, tag="session"):
    """A session is open and its prompt is committed. First of all events, and first again for each child."""

    id: str
    parent_id: str | None
    model: str
    compaction: str


class PromptQueued(Event, frozen=True, tag="queued"):
    """A prompt waits for the running turn; in the app also for the user, after a turn that did not answer it:
    it could not be sent, or it was interrupted before anything of a reply had come, and is no longer part of
    the context. `prompt` follows when it is sent, unless it is removed."""

    id: str
    text: str
    images: tuple[ImageInfo, ...] = ()
    next_step: bool = False
    """It is sent with the next step, before the turn ends."""


class PromptCommitted(Event, frozen=True, tag="prompt"):
    """A user's prompt is stored. Comes after `session`; opens a turn, closed by exactly one `turn_end`.

    One that `steers` comes inside a turn, when every call has its result, and opens none.
    """

    message_id: str
    text: str
    images: tuple[ImageInfo, ...] = ()
    """A description of each picture."""
    steers: bool = False
    pasted: tuple[tuple[int, int], ...] = ()
    """Start and end of what is not the user's own words."""


class TextDelta(Event, frozen=True, tag="text"):
    """A piece of the reply. Only inside a turn; the pieces of a step make up its `message`."""

    text: str


class ThinkingDelta(Event, frozen=True, tag="thinking"):
    """A piece of the model's thinking. Only inside a turn."""

    text: str


class MessageCommitted(Event, frozen=True, tag="message"):
    """The assistant's message of this step is stored. Before the `tool_call`s it asks for."""

    message_id: str
    texts: tuple[str, ...]
    """Its text parts."""
    model: str
    interrupted: bool = False
    """The user interrupted it, or crushpy was killed."""

    @property
    def text(self) -> str:
        return "".join(self.texts)


class UsageReported(Event, frozen=True, tag="usage"):
    """Usage of the last model call, and of the conversation so far. After the step's `message`."""

    call: Usage
    total: Usage


class ToolCalled(Event, frozen=True, tag="tool_call"):
    """The model asked for a tool. After the `message` that holds it; answered by one `tool_result`."""

    id: str
    name: str
    args: dict[str, Any]
    target: str = ""
    """The tool of an MCP server that a call of `mcp` runs."""


class ApprovalNeeded(Event, frozen=True, tag="approval"):
    """A question to the user. About a call: after its `tool_call`, before its `tool_result`.

    The call of a sub-agent has neither: it waits while the call `task` runs. These questions belong to no
    call: about a project's hooks, named `hooks`; of an MCP server, named `form`; about a pin, with `pin` in
    its arguments; about a file that the prompt mentions, a `view`; about a command in the text of a slash
    command, a `bash`.
    Answer with `Conversation.answer(id, ...)`; closed by `approval_done`.
    """

    id: str
    name: str
    args: dict[str, Any]
    accesses: tuple[Access, ...]
    reason: str
    """Why the user is asked: the rule, or what no rule covers."""
    rule: str
    """What "always" would store; empty if no rule could cover it."""
    preview: Display | None = None
    task: str = ""
    """The id of the `task` call whose sub-agent asks; empty for the main agent."""
    choices: tuple[AnswerChoice, ...] = ()
    """The possible answers: yes, mostly yes from now on, no, then further scopes."""
    place: tuple[int, int] = (1, 1)
    """Its number among the questions about one reply, and how many there are."""
    title: str = ""
    """The question in a sentence: Edit src/tax.py?"""
    follows: bool = False
    """The question before it was about the same tool, allowed once, and this one needs nothing more."""
    escape: str = ""
    """What Esc does, in words, if it answers no; empty if it interrupts the turn."""


class ApprovalDone(Event, frozen=True, tag="approval_done"):
    """The answer to an `approval`: once, conversation, always, deny, or interrupted."""

    id: str
    answer: str
    words: str = ""
    """With deny: what the user told the agent."""
    covers: str = ""
    """What the chosen answer covers; empty for the call alone."""


class ToolStarted(Event, frozen=True, tag="tool_start"):
    """A call's intent is stored and it runs now. After its `tool_call`, before its `tool_result`."""

    id: str


class ToolOutput(Event, frozen=True, tag="tool_output"):
    """A piece of what a running tool prints. Between `tool_start` and `tool_result`; not stored."""

    id: str
    text: str


class ToolFinished(Event, frozen=True, tag="tool_result"):
    """A call has its result, stored. Exactly one for each `tool_call`."""

    id: str
    name: str
    is_error: bool
    text: str
    display: Display | None = None
    images: tuple[ImageInfo, ...] = ()
    decision: CallDecision | None = None
    """Whether it could run, and who decided."""
    ended: str = ""
    """interrupted, not_run, or empty if it ended by itself."""

    @staticmethod
    def from_result(result: ToolResult) -> "ToolFinished":
        what = (result.call_id, result.name, result.is_error, result.text, result.display)
        images = tuple(image.info for image in result.images)
        return ToolFinished(*what, images, result.decision, result.ended)


class TaskProgress(Event, frozen=True, tag="task_progress"):
    """Progress of a sub-agent. Between the `tool_start` and the `tool_result` of its call; not stored."""

    id: str
    """Of the `task` call."""
    session_id: str
    """The session of its transcript."""
    steps: int
    doing: str
    """The call it makes, in a line; empty while it thinks."""
    tokens: int
    """Used so far."""


class ListedTaskChanged(Event, frozen=True, tag="task"):
    """The state of a task of a list; a new state is stored. Once for each task after the list's `prompt`,
    then on progress; the last one of each task says how it ended."""

    name: str
    state: str
    """waiting, running, done, failed, limit, interrupted or skipped (a task that it needs is not done)."""
    step: int
    """Model calls so far."""
    tokens: int
    cost: float
    line: str
    """Its last activity, in a line."""
    number: int
    """Its place in the list, from 1."""
    of: int
    session_id: str = ""
    branch: str = ""
    """Holds its changes, if it had a worktree."""
    error: str = ""
    """Why it did not succeed."""
    worktree: bool = False
    """It has its own worktree; done without a branch means no changes."""


class TaskEvent(Event, frozen=True, tag="task_event"):
    """An event of a listed task's agent, with the task's name. Events of one task are in the usual order;
    several tasks may run in parallel. While its task is running."""

    name: str
    event: Event


MAKING_SUMMARY, LOADING = "Making a summary", "Loading litellm"
READING_PROMPT = "The server is reading the prompt"
"""Work that a front end also shows in other ways, until there is a figure."""


class Progress(Event, frozen=True, tag="progress"):
    """Progress of long work. Anywhere; over once `done` is `total`, and with the turn."""

    what: str
    """In words: Making a summary. One of each kind at a time."""
    done: int
    total: int
    """0 if unknown."""


class JobEnded(Event, frozen=True, tag="job_end"):
    """A background command has ended, by itself or with crushpy. Anywhere after the call that started it."""

    id: str
    command: str
    text: str
    """How it ended, in words."""


class TodosChanged(Event, frozen=True, tag="todos"):
    """The current todos. After the `tool_result` that changed them."""

    todos: tuple[Todo, ...]


class TitleChanged(Event, frozen=True, tag="title"):
    """The title changed, stored. Anywhere after `session`."""

    title: str


class ModeChanged(Event, frozen=True, tag="mode"):
    """The mode changed, stored with the session if there is one. Anywhere."""

    mode: Mode


class PlanReady(Event, frozen=True, tag="plan"):
    """The agent has finished a plan in plan mode. After `turn_end`, if no prompt is queued.

    `Conversation.accept_plan` carries it out; any prompt rejects it.
    """

    message_id: str
    text: str


class Compacting(Event, frozen=True, tag="compacting"):
    """A boundary is being made. A `boundary` follows, or a `notice` that says why not."""

    trigger: CompactionTrigger


class PreparationChanged(Event, frozen=True, tag="preparation"):
    """The summary of the next boundary is made in the background. Anywhere after `session`.

    preparing, then ready or failed; used or discarded ends it.
    """

    state: PreparationState
    moment: str = ""
    """The natural moment that started it; empty if the window was nearly full."""
    cost: float = 0.0
    """US dollars so far."""


class ReviewNeeded(Event, frozen=True, tag="review"):
    """A summary waits for the user's answer before the boundary. Answer with
    `Conversation.context.review(id, ...)`.

    After `compacting`; closed by `review_done`.
    """

    id: str
    trigger: CompactionTrigger
    summary: str
    evidence: str
    tokens_before: int
    tokens_after: int


class ReviewDone(Event, frozen=True, tag="review_done"):
    """The answer to a `review`: accept, regenerate, decline or interrupted."""

    id: str
    answer: str


class BoundaryCommitted(Event, Boundary, frozen=True, tag="boundary"):
    """A session ended and its child is open, both stored. The child's `session` follows at once."""

    coverage: float | None = None
    """Share of the facts left behind that an exact match finds in the carried text."""
    prose_coverage: float | None = None
    """The same for the summary alone."""
    summary: str = ""
    evidence: str = ""
    pins: str = ""
    rules: str = ""


class HindsightKnown(Event, frozen=True, tag="hindsight"):
    """What the agent needed since a boundary: known after 20 replies, final after 80 or at the next one."""

    child_id: str
    """The session that the boundary opened."""
    needed: int
    """Names that it used and that had occurred before the boundary, but not since."""
    carried: int
    """How many of them the child had started with."""
    reread_files: int
    reread_tokens: int
    """Of files and searches that were looked up again."""
    final: bool

    @property
    def words(self) -> str:
        """For the card, in one line."""
        again = f"; read again: {counted(self.reread_files, 'file')}" if self.reread_files else ""
        tokens = f" ({short_count(self.reread_tokens)} tokens)" if self.reread_files else ""
        needed = f"needed since: {counted(self.needed, 'name')}, {self.carried} had been carried"
        return needed + again + tokens


def boundary_event(boundary: StoredBoundary, seed: Seed) -> BoundaryCommitted:
    return BoundaryCommitted(
        **{name: getattr(boundary, name) for name in Boundary.__struct_fields__},
        coverage=carried_share(boundary.facts),
        prose_coverage=carried_share(boundary.facts, by_prose=True),
        summary=seed.summary,
        evidence=seed.evidence,
        pins=seed.pins,
        rules=seed.rules,
    )


class BranchOpened(Event, frozen=True, tag="branch"):
    """A branch is open and stored; its `session` follows at once. Between two steps, or outside a turn."""

    session_id: str
    parent_id: str
    goal: str
    depth: int
    """1 for a branch of the conversation itself."""


class BranchReturned(Event, frozen=True, tag="return"):
    """A branch ended, and its parent continues with the result, stored. Every call has its result."""

    session_id: str
    """The branch."""
    parent_id: str
    """The session that continues."""
    chars: int
    """Of the returned text."""
    interrupted: bool
    report: BranchReport


class SideAnswer(Event, frozen=True, tag="btw"):
    """The answer to a side question, which is not part of the context. Anywhere after `session`."""

    question: str
    text: str
    usage: Usage


class RuleChanged(Event, frozen=True, tag="rule"):
    """A sentence of a prompt was taken as a standing rule, or the user ended one. After the `prompt` that
    contains it; an end is anywhere. An id holds until a message is dropped, which renumbers the rules of
    later ones: find the number of a rule by its text before you call `Conversation.rules.drop`."""

    text: str
    action: Literal["found", "ended"]
    id: str
    """Its number in the conversation at that moment; empty for a sentence that only asks to end the one in
    `replaces`."""
    replaces: str = ""
    """The earlier rule that it seems to replace. Both apply until the user ends one."""
    replaces_id: str = ""

    @property
    def words(self) -> str:
        if self.action == "ended":
            return f"Rule ended: {self.text}"
        if not self.id:
            return f"End this rule: {self.replaces}?"
        return f"Taken as a rule: {self.text}" + (f"\nReplaces: {self.replaces}?" if self.replaces else "")


class Notice(Event, frozen=True, tag="notice"):
    """Something the user should know and need not act on. Anywhere."""

    text: str
    level: str = "info"
    """info or warning."""


class Retry(Event, frozen=True, tag="retry"):
    """A model call failed and is tried again; what was streamed of this step is void. Inside a turn."""

    attempt: int
    seconds: float
    """Until the next attempt."""
    reason: str
    of: int = 0
    """The maximum number of attempts."""
    status: int | None = None
    """The server's status code, if it answered."""


class Error(Event, frozen=True, tag="error"):
    """The turn failed. `turn_end` follows with status `error`; at once, if there is no `prompt` because it
    could not be sent."""

    kind: str
    message: str
    hint: str = ""
    """What to do about it."""


class TurnEnded(Event, frozen=True, tag="turn_end"):
    """A turn is over. After it the session is valid and idle: every call has its result."""

    status: str
    """done, interrupted, error, limit or loop."""


class RunSummarized(Event, frozen=True, tag="run_summary"):
    """What a headless run did and what it leaves behind, in a line. Just before `result`."""

    text: str


class Result(Event, frozen=True, tag="result"):
    """The end of a headless run. Last of all events, always."""

    session_id: str
    root_id: str
    text: str
    usage: Usage
    cost: float
    exit_code: int
    error: str = ""
    """Why the run failed."""
    tasks: tuple[ListedTaskChanged, ...] = ()
    """The final states of a task list, in list order."""
