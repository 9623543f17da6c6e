"""The facts of one message, extracted once, when it is committed; the ledger merges them."""

import re
from collections.abc import Callable, Sequence

from crushpy.context import facts
from crushpy.context.standing_rules import MAX_STATEMENTS, RulePhrases, UserStatement, edits_in, own_words_of
from crushpy.core.mcp_names import called_tool
from crushpy.core.messages import Data, Message, ToolCall, ToolResult

MAX_REQUEST_CHARS = 40_000
MAX_REPLY_CHARS = 4_000
MAX_PATHS = 40
"""Of the files that a failing command names."""
TEST_LINES = 3
"""Of a test run's output."""
_PATHS = re.compile(r"(?<![\w.@~+-])[\w.@~+-]*+(?:/[\w.@+-]++)+|(?<![\w+-])[\w+-]++\.[A-Za-z]\w{0,4}\b")
_SEARCHED_CHARS = 4_000
"""Characters of a failing command's output that are searched for file names."""


class CommandFacts(Data, frozen=True):
    """A shell command that ran, or whose end was reported."""

    text: str
    failed: bool = False
    exit_code: int | None = None
    note: str = ""
    background: bool = False
    job: tuple[str, str] | None = None
    """The job whose end was reported: each end counts once."""
    is_test: bool = False
    lines: tuple[str, ...] = ()
    """Of tests: the last of their output."""
    paths: tuple[str, ...] = ()
    """The files that a failing command named, in full."""


class MessageFacts(Data, frozen=True):
    request: facts.Quote | None = None
    reply: facts.Quote | None = None
    """Text of a reply that may belong to the first turn of the conversation."""
    tool: str = ""
    """The tool that a call was answered by."""
    command: CommandFacts | None = None
    files: tuple[facts.Touched, ...] = ()
    """Read or changed; paths in full."""
    loaded: tuple[str, ...] = ()
    """Skills and rules files that came with a result."""
    statements: tuple[UserStatement, ...] | None = None
    """Of the user's own words: rules, decisions and the end of rules. None if they were not searched for."""
    statements_dropped: int = 0
    """Beyond `MAX_STATEMENTS`."""
    message_id: str = ""
    at: float = 0.0
    """The message and its time, if there are statements."""
    branch: "tuple[MessageFacts, ...]" = ()
    """Of a returned branch: the facts of its messages, in their order."""


NOTHING = MessageFacts()


class FactReader:
    """Reads the messages of one session in their order: a result is understood by the call it answers."""

    def __init__(
        self, cwd: str, messages: Sequence[Message] = (), phrases: Callable[[], RulePhrases] | None = None
    ) -> None:
        """`messages` were committed before. Without `phrases` no rules are searched for."""
        self._cwd = cwd
        self._phrases = phrases
        self._waiting: dict[str, ToolCall] = {}
        self._asked = 0
        for message in messages:
            self.committed(message)

    def extract(self, message: Message) -> MessageFacts:
        """The facts of the next message. Changes nothing, because the message may fail to be stored."""
        if message.role == "user":
            text = facts.request_text(message)
            bounded = _bounded(text, message.id, MAX_REQUEST_CHARS)
            request = facts.Quote(message.id, bounded) if text else None
            return self._said(message, request)
        if message.role == "assistant":
            text = message.text.strip() if self._asked <= 1 else ""  # a child may begin in the first turn
            bounded = _bounded(text, message.id, MAX_REPLY_CHARS)
            return MessageFacts(reply=facts.Quote(message.id, bounded)) if text else NOTHING
        result = message.result
        call = self._waiting.get(result.call_id) if result is not None else None
        return self._of_call(call, result) if call is not None and result is not None else NOTHING

    def _said(self, message: Message, request: facts.Quote | None) -> MessageFacts:
        if self._phrases is None:
            return MessageFacts(request=request) if request else NOTHING
        found = edits_in(message)
        if request is not None:
            found += self._phrases().find(own_words_of(message))
        if request is None and not found:
            return NOTHING
        kept = tuple(found[:MAX_STATEMENTS])
        more = sum(one.rule for one in found[MAX_STATEMENTS:])
        return MessageFacts(
            request, statements=kept, statements_dropped=more, message_id=message.id, at=message.created_at
        )

    def committed(self, message: Message) -> None:
        for call in message.calls:
            self._waiting[call.id] = call
        if (result := message.result) is not None:
            self._waiting.pop(result.call_id, None)
        if message.role == "user" and facts.request_text(message):
            self._asked += 1

    def extract_all(self, messages: Sequence[Message]) -> list[MessageFacts]:
        found: list[MessageFacts] = []
        for message in messages:
            found.append(self.extract(message))
            self.committed(message)
        return found

    def _of_call(self, call: ToolCall, result: ToolResult) -> MessageFacts:
        files = tuple(
            facts.Touched(facts.absolute(file.path, self._cwd), file.action)
            for file in facts.touched_by(call, result)
        )
        tool = called_tool(call.name, call.args) if not result.is_error else call.name
        return MessageFacts(tool=tool, command=self._command(call, result), files=files, loaded=result.loaded)

    def _command(self, call: ToolCall, result: ToolResult) -> CommandFacts | None:
        ran = facts.command_of(call, result)
        if ran is None:
            return None
        is_test = not ran.background and ran.is_test
        lines = [line for line in ran.output.strip().splitlines() if line.strip()][-TEST_LINES:]
        return CommandFacts(
            ran.text,
            ran.failed,
            ran.exit_code,
            ran.note,
            ran.background,
            ran.job,
            is_test,
            tuple(lines) if is_test else (),
            self._named(ran) if ran.failed else (),
        )

    def _named(self, command: facts.Command) -> tuple[str, ...]:
        text = f"{command.text[:_SEARCHED_CHARS]}\n{command.output[-_SEARCHED_CHARS:]}"
        named = dict.fromkeys(facts.absolute(path, self._cwd) for path in _PATHS.findall(text))
        return tuple(named)[:MAX_PATHS]


def _bounded(text: str, message_id: str, most: int) -> str:
    """A text of a size that can be quoted; the stored message has the rest."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}\n[... recall {message_id} ...]\n{text[-half:]}"
