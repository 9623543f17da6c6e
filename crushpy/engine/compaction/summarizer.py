"""Asks a model for the summary of a session's middle. All of the middle is sent to it, without tools.

This module decides which models are tried, how a large middle is split, and which replies are rejected. What
a failure means for the session is up to the caller.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import msgspec

from crushpy.context.render import fitted_chunks
from crushpy.context.tags import element, safe
from crushpy.core.boundary import SummaryOrigin
from crushpy.core.errors import CrushpyError
from crushpy.core.events import Emit, Event, Progress, Retry, TextDelta, ThinkingDelta
from crushpy.core.messages import BOUND_PREFIX, Data, Message, SignedSummary, Usage
from crushpy.core.templates import Template, fill_template
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.session.session import user_message
from crushpy.engine.step.model_call import Draft, ModelCall
from crushpy.engine.turn.limits import BudgetReached
from crushpy.llm import errors
from crushpy.llm.protocol import Request
from crushpy.util.spawn import run_parallel

CHARS_PER_TOKEN = 4
"""A rough figure, for a progress bar."""
MAX_CHUNKS = 8
MAX_PARALLEL_CALLS = 3
REST_S = 60.0
"""How long a model that failed in spite of retries is not asked again, unless the user asks for a summary."""
MAX_OVERFLOWS = 2
"""Calls in a row that may overflow during overflow recovery."""


class SummaryJob(Data, frozen=True):
    middle: tuple[Message, ...]
    previous: str
    """The summary the session started with: to be updated, not summarised again."""
    target_tokens: int
    names: dict[str, object]
    """Variables for the template: focus, todos, cwd, method."""
    main_model: str
    """The session's model. If it cannot be reached either, nothing changes."""
    seconds: float
    """Timeout of one call."""
    auxiliary: str = ""
    """Asked before the main model, if set."""
    template: Template | None = None
    """Replaces the template in force."""
    sent: Request | None = None
    """The conversation up to the end of the middle, as it was sent: for a summary by the vendor."""


class Summary(Data, frozen=True):
    """The result of a summariser; without text if every model failed."""

    text: str = ""
    model: str = ""
    template: str = ""
    template_hash: str = ""
    usage: Usage = Usage()
    truncated_chars: int = 0
    """Characters of tool results left out because the middle exceeded all chunks together."""
    problem: str = ""
    """Why there is no summary, or why it is not the first model's."""
    seconds: float = 0.0
    """Duration in the background; 0 if the turn waited for it."""
    prepared: bool = False
    """It was written in the background."""
    origin: SummaryOrigin = "evidence"
    signed: SignedSummary | None = None
    """The vendor's own form of the text."""


class Postponed(CrushpyError):
    """The provider could not be reached or refused the key: nothing changed; retried later."""


class _Failed(Exception):
    """This model returned no usable summary."""


class SummaryProgress:
    """Tokens written by the current run, out of the expected number. A finished call counts as complete."""

    def __init__(self) -> None:
        self._expected = 0
        self._written: dict[int, int] = {}
        self._watcher: Callable[[int, int], None] | None = None

    def expect(self, tokens: int) -> None:
        """A model starts; `tokens` are expected from all its calls together."""
        self._expected = tokens
        self._written.clear()
        self._notify()

    def set_written(self, call: int, tokens: int) -> None:
        self._written[call] = tokens
        self._notify()

    @contextmanager
    def watched(self, watcher: Callable[[int, int], None]) -> Generator[None]:
        """Calls `watcher(written, expected)` at once and on every change."""
        self._watcher = watcher
        self._notify()
        try:
            yield
        finally:
            self._watcher = None

    def _notify(self) -> None:
        if self._watcher is not None:
            self._watcher(sum(self._written.values()), self._expected)


class Summarizer:
    """Writes summaries for one session. `scope.gauge` also knows windows learnt from errors."""

    def __init__(self, scope: AgentScope, emit: Emit, prepares_for: "Summarizer | None" = None) -> None:
        """`prepares_for`: this one works in the background, where a timeout delays nothing."""
        self.failed_at: dict[str, float] = prepares_for.failed_at if prepares_for else {}
        """When each model failed, by the clock."""
        self._resting = errors.Unavailable, errors.RateLimited, *(() if prepares_for else (errors.TimedOut,))
        """Errors after which a model is not asked again for a while."""
        self._models, self._gauge = scope.models, scope.gauge
        self._templates = scope.services.templates
        self._count = scope.gauge.count
        self._emit = emit
        self._session = scope.session
        self.progress = SummaryProgress()
        self.usage = Usage()
        """Of the current run, or of the last one."""
        self._calls = 0
        self.overflows = 0
        """Calls in a row that overflowed, since any model replied."""
        self._recovering = False
        self._refusing: set[str] = set()
        """Models whose server writes no summaries."""

    async def run(self, job: SummaryJob, *, may_postpone: bool) -> Summary:
        """The summary, or one without text that says why. Raises Postponed only if `may_postpone`."""
        self.usage, self._calls = Usage(), 0
        self._recovering = not may_postpone
        problems: list[str] = []
        if job.sent is not None and job.main_model not in self._refusing:
            try:
                return await self._by_vendor(job, job.sent)
            except (_Failed, errors.ModelError) as error:
                if isinstance(error, errors.BadRequest):
                    self._refusing.add(job.main_model)
                problems.append(f"{job.main_model}, by the vendor: {error.args[0] if error.args else error}")
        for model in dict.fromkeys(filter(None, (job.auxiliary, job.main_model))):
            seconds = time.monotonic() - self.failed_at.get(model, -REST_S)
            if seconds < REST_S:
                problems.append(f"{model}: it failed {seconds:.0f} s ago, and rests for {REST_S:g} s")
                continue
            try:
                text, truncated_chars = await self._with_model(model, job)
                return self._summary(job, problems, text, model, truncated_chars)
            except (_Failed, errors.ModelError) as error:
                problems.append(f"{model}: {error.args[0] if error.args else error}")
                if isinstance(error, self._resting):
                    self.failed_at[model] = time.monotonic()
                if may_postpone and model == job.main_model and _is_outside(error):
                    raise Postponed(str(error)) from error
                if isinstance(error, BudgetReached):
                    raise
        return self._summary(job, problems)

    def _summary(
        self, job: SummaryJob, problems: list[str], text: str = "", model: str = "", truncated_chars: int = 0
    ) -> Summary:
        found = self.template(job)
        return Summary(
            text=text,
            origin="model" if text else "evidence",
            model=model,
            template=found.path if found.layer != "shipped" else "shipped",
            template_hash=hashlib.blake2b(found.text.encode(), digest_size=8).hexdigest(),
            usage=self.usage,
            truncated_chars=truncated_chars,
            problem="; ".join(problems),
        )

    async def _by_vendor(self, job: SummaryJob, sent: Request) -> Summary:
        """A summary of the conversation as the model has it in its cache. Raises _Failed or ModelError."""
        instructions, _ = self._instructions(job, job.previous)
        limit = max(2 * job.target_tokens, sent.max_output_tokens or 0)
        request = msgspec.structs.replace(sent, summarize=instructions, max_output_tokens=limit)
        self.progress.expect(job.target_tokens)
        draft = await self._send(request, job)
        source = await asyncio.to_thread(lambda: sum(self._gauge.size(each) for each in job.middle))
        text = self._checked(draft, source, job)
        signed = next((block for block in draft.opaque if text == str(block.get("content")).strip()), None)
        if signed is None:
            raise _Failed("it was too long, or not signed")
        prefix = str(signed.get(BOUND_PREFIX, ""))
        block = {key: value for key, value in signed.items() if key != BOUND_PREFIX}
        found = self._summary(job, [], text, job.main_model)
        return msgspec.structs.replace(found, signed=SignedSummary(block, job.main_model, prefix))

    async def _with_model(self, model: str, job: SummaryJob) -> tuple[str, int]:
        window = self._gauge.window(model)
        system, _ = self._instructions(job, job.previous)
        count = self._gauge.count_for(model)
        overhead = count(system) + count(job.previous) + 2 * job.target_tokens + 500
        limit = max(500, int(window * 0.9) - overhead)
        chunks, truncated_chars = await asyncio.to_thread(
            fitted_chunks, job.middle, limit=limit, most=MAX_CHUNKS, count=count
        )
        if not chunks:
            raise _Failed("there is nothing to summarise")
        if len(chunks) == 1:
            self.progress.expect(job.target_tokens)
            return await self._piece(model, chunks[0], job, job.previous), truncated_chars
        parts = await self._pieces(model, chunks, job, limit)
        merged = "\n\n".join(
            element("summary", part, part=f"{number} of {len(parts)}") for number, part in enumerate(parts, 1)
        )
        source = await asyncio.to_thread(lambda: sum(map(self._count, (*chunks, job.previous))))
        return await self._call(model, merged, job, job.previous, source), truncated_chars

    async def _pieces(self, model: str, chunks: list[str], job: SummaryJob, limit: int) -> list[str]:
        """Summaries of all chunks, in order, small enough to merge in one call."""
        target = max(50, min(job.target_tokens, limit // (2 * len(chunks))))
        self.progress.expect(target * len(chunks) + job.target_tokens)  # the last call merges them
        job = msgspec.structs.replace(job, target_tokens=target)
        found = [""] * len(chunks)

        async def summarize(number: int) -> None:
            found[number] = await self._piece(model, chunks[number], job, "")

        if self._recovering:  # the first call shows whether the others are worth it
            await summarize(0)
        await run_parallel(range(int(self._recovering), len(chunks)), summarize, MAX_PARALLEL_CALLS)
        return found

    async def _piece(self, model: str, chunk: str, job: SummaryJob, previous: str) -> str:
        """Summarises one chunk. If it overflows, it is halved once."""
        source = await asyncio.to_thread(lambda: self._count(chunk) + self._count(previous))
        try:
            return await self._call(model, chunk, job, previous, source)
        except errors.ContextOverflow:
            middle = chunk.rfind("\n", 0, len(chunk) // 2) + 1 or len(chunk) // 2
            first = await self._call(model, chunk[:middle], job, previous, source)
            return await self._call(model, chunk[middle:], job, first, source)

    async def _call(self, model: str, text: str, job: SummaryJob, previous: str, source: int) -> str:
        """One model call. `source` is the size of the text that the reply replaces."""
        if self._recovering and self.overflows >= MAX_OVERFLOWS:
            raise errors.ContextOverflow(f"{model} rejected {self.overflows} smaller requests as too large.")
        system, _ = self._instructions(job, previous)
        content = await asyncio.to_thread(element, "transcript", text)
        if safe(previous).strip() not in system:  # a template need not use it, but it must not be lost
            content = f"{element('previous_notes', previous)}\n\n{content}"
        request = Request(
            model=model,
            system=system,
            messages=(user_message(content),),
            max_output_tokens=2 * job.target_tokens,
        )
        return self._checked(await self._send(request, job), source, job)

    async def _send(self, request: Request, job: SummaryJob) -> Draft:
        """One model call, whose usage is counted."""
        model = request.model
        await self._models.prepare(model)
        self._calls += 1
        number, received = self._calls, 0

        def on_event(event: Event) -> None:
            nonlocal received
            match event:
                case TextDelta() | ThinkingDelta():
                    received += len(event.text)
                    self.progress.set_written(number, min(received // CHARS_PER_TOKEN, job.target_tokens))
                case Retry():
                    received = 0
                    self._emit(event)
                case Progress():
                    self._emit(event)
                case _:
                    pass

        def may_retry(error: errors.ModelError) -> bool:
            """An empty reply is final. So is an auxiliary model that cannot be reached."""
            lost = model != job.main_model and _is_outside(error)
            return not isinstance(error, errors.EmptyReply) and not lost

        call = ModelCall(self._models, request, on_event, may_retry=may_retry)
        try:
            # A server with one slot may read for minutes, and has nothing better to do.
            async with asyncio.timeout(None if self._models.has_one_slot(model) else job.seconds):
                draft = await call.run()
        except TimeoutError:
            raise errors.TimedOut(f"{model} took longer than {job.seconds:g} s to summarise.") from None
        except errors.ContextOverflow:
            self.overflows += 1
            raise
        self.overflows = 0
        self.progress.set_written(number, job.target_tokens)
        usage = self._models.with_cost(model, draft.end.usage) if draft.end.usage else Usage()
        self.usage += usage
        if usage.total:
            await self._session.count(usage)
        return draft

    def _checked(self, draft: Draft, source: int, job: SummaryJob) -> str:
        """The prose. Raises _Failed if it cannot replace its source."""
        text = "".join(draft.text).strip()
        if not text:
            raise _Failed("only tool calls" if draft.calls else "empty reply")
        size = self._count(text)
        if size >= source / 2 and size > job.target_tokens // 4:
            raise _Failed("the summary is not smaller than half of its source")
        cap = 2 * job.target_tokens
        return text if size <= cap else text[: len(text) * cap // size].rstrip() + " …"

    def _instructions(self, job: SummaryJob, previous: str) -> tuple[str, Template]:
        """The system prompt of the summariser, and the template it was rendered from."""
        names = {**job.names, "previous_summary": safe(previous), "target_tokens": job.target_tokens}
        if job.template is not None:
            text = fill_template(job.template.text, job.template.path, names)
            return text.rstrip("\n"), job.template
        return self._templates.rendered("summary", **names)

    def template(self, job: SummaryJob) -> Template:
        """The template that `job` would use now."""
        return self._instructions(job, "")[1]


def _is_outside(error: Exception) -> bool:
    """Authentication and network errors, and no money left: a smaller request would not help."""
    if isinstance(error, errors.Unavailable):
        return error.status is None
    return isinstance(error, errors.AuthenticationFailed | BudgetReached)
