"""Has a model write the summary of a session's middle. All of the middle reaches it; no tools; no guesses.

Which models are tried, how a large middle is split, and what counts as a failure is decided here. What
a failure means for the session is decided by whoever asked.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine

import msgspec

from crushpy.context.render import fitted_chunks
from crushpy.context.tags import element, safe
from crushpy.core.errors import CrushpyError
from crushpy.core.events import Event, Progress, Retry
from crushpy.core.messages import Data, Message, Usage
from crushpy.core.templates import Template, Templates, fill_template
from crushpy.engine.compaction.gauge import Gauge
from crushpy.engine.compaction.summary_progress import SummaryProgress
from crushpy.engine.models import Models
from crushpy.engine.session.session import user_message
from crushpy.engine.turn.model_call import Draft, ModelCall
from crushpy.llm.errors import (
    AuthenticationFailed,
    ContextOverflow,
    EmptyReply,
    ModelError,
    TimedOut,
    Unavailable,
)
from crushpy.llm.protocol import Request
from crushpy.util.spawn import spawn

MAX_CHUNKS = 8
SIDE_BY_SIDE = 3
SECONDS_TO_REACH = 5.0
"""How long an auxiliary model may take to be reached: the main one is there to step in."""
MAX_IN_VAIN = 2
"""Calls in a row that may overflow while an overflow is being recovered from."""


class SummaryJob(Data, frozen=True):
    """What is to be summarised, and how."""

    middle: tuple[Message, ...]
    previous: str
    """The summary the session started with: to be updated, not summarised again."""
    target_tokens: int
    names: dict[str, object]
    """What the template may use: focus, todos, cwd, method."""
    main_model: str
    """That of the session: where it cannot be reached either, nothing is changed."""
    seconds: float
    """How long one call may take."""
    auxiliary: str = ""
    """Asked before the main one, where the settings name it."""
    template: Template | None = None
    """Use this one instead of the template in force."""


class Summary(Data, frozen=True):
    """What a summariser wrote; empty text where none did."""

    text: str = ""
    model: str = ""
    template: str = ""
    template_hash: str = ""
    usage: Usage = Usage()
    calls: int = 0
    truncated_chars: int = 0
    """Characters of tool results left out because the middle was larger than all chunks together."""
    problem: str = ""
    """Why there is no summary, or why not the first model's."""
    seconds: float = 0.0
    """How long it took in the background; 0 where somebody waited for it."""
    counted: bool = False
    """Its usage is in the conversation's total already."""
    source: str = ""
    """edited where the user changed it, user where it is all the user's; else empty."""


class Postponed(CrushpyError):
    """The provider could not be reached or refused the key: nothing is changed, and it is tried later."""


class _Failed(Exception):
    """This model gave no usable summary."""


class Summarizer:
    """`gauge` counts, and knows the windows: also those that only an error told."""

    def __init__(
        self,
        models: Models,
        templates: Templates,
        gauge: Gauge,
        emit: Callable[[Event], None],
        count_usage: Callable[[Usage], Awaitable[None]] | None = None,
    ) -> None:
        """`count_usage` hears of each call at once; without it, whoever uses the summary counts its usage."""
        self._models = models
        self._templates = templates
        self._gauge = gauge
        self._count = gauge.count
        self._emit = emit
        self._count_usage = count_usage
        self.progress = SummaryProgress()
        self._usage = Usage()
        self._calls = 0
        self._in_vain = 0
        self._recovering = False

    @property
    def usage(self) -> Usage:
        """Of the run at hand, or of the last one."""
        return self._usage

    def replied(self) -> None:
        """A model answered: whatever overflowed before, the next time may be different."""
        self._in_vain = 0

    async def run(self, job: SummaryJob, *, may_postpone: bool) -> Summary:
        """The summary, or one without text that says why. Raises Postponed only where that is allowed."""
        self._usage, self._calls = Usage(), 0
        self._recovering = not may_postpone
        problems: list[str] = []
        for model in dict.fromkeys(filter(None, (job.auxiliary, job.main_model))):
            try:
                text, truncated_chars = await self._with_model(model, job)
                return self._summary(
                    job, text=text, model=model, truncated_chars=truncated_chars, problems=problems
                )
            except (_Failed, ModelError) as error:
                problems.append(f"{model}: {error.args[0] if error.args else error}")
                if may_postpone and model == job.main_model and _is_outside(error):
                    raise Postponed(str(error)) from error
        return self._summary(job, problems=problems)

    def _summary(
        self,
        job: SummaryJob,
        *,
        problems: list[str],
        text: str = "",
        model: str = "",
        truncated_chars: int = 0,
    ) -> Summary:
        found = self.template(job)
        return Summary(
            text=text,
            model=model,
            template=found.path if found.layer != "shipped" else "shipped",
            template_hash=hashlib.blake2b(found.text.encode(), digest_size=8).hexdigest(),
            usage=self._usage,
            calls=self._calls,
            truncated_chars=truncated_chars,
            problem="; ".join(problems),
        )

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
        """Summaries of all chunks, in order, small enough to be merged by one call."""
        target = max(50, min(job.target_tokens, limit // (2 * len(chunks))))
        self.progress.expect(target * len(chunks) + job.target_tokens)  # the last call merges them
        job = msgspec.structs.replace(job, target_tokens=target)
        gate = asyncio.Semaphore(SIDE_BY_SIDE)

        async def one(chunk: str) -> str:
            async with gate:
                return await self._piece(model, chunk, job, "")

        # While an overflow is being recovered from, the first tells whether the others are worth a call.
        first = [await one(chunks[0])] if self._recovering else []
        return first + await _all(*(one(chunk) for chunk in chunks[len(first) :]))

    async def _piece(self, model: str, chunk: str, job: SummaryJob, previous: str) -> str:
        """Summarises one chunk; one that overflows after all is halved once."""
        source = await asyncio.to_thread(lambda: self._count(chunk) + self._count(previous))
        try:
            return await self._call(model, chunk, job, previous, source)
        except ContextOverflow:
            middle = chunk.rfind("\n", 0, len(chunk) // 2) + 1 or len(chunk) // 2
            first = await self._call(model, chunk[:middle], job, previous, source)
            return await self._call(model, chunk[middle:], job, first, source)

    async def _call(self, model: str, text: str, job: SummaryJob, previous: str, source: int) -> str:
        """One call of a model. `source` is the size of what the reply will stand for."""
        if self._recovering and self._in_vain >= MAX_IN_VAIN:
            raise ContextOverflow(f"{model} said {self._in_vain} times that less is too much.")
        system, _ = self._instructions(job, previous)
        content = await asyncio.to_thread(element, "transcript", text)
        if safe(previous).strip() not in system:  # a template need not name it, but it must not be lost
            content = f"{element('previous_notes', previous)}\n\n{content}"
        request = Request(
            model=model,
            system=system,
            messages=(user_message(content),),
            max_output_tokens=2 * job.target_tokens,
        )
        await self._models.prepare(model)
        self._calls += 1
        number = self._calls

        def changed(draft: Draft) -> None:
            self.progress.wrote(number, draft.text.characters, job.target_tokens)

        call = self._model_call(model, request, changed, auxiliary=model != job.main_model)
        try:
            async with asyncio.timeout(job.seconds):
                draft = await call.run()
        except TimeoutError:
            raise TimedOut(f"{model} took longer than {job.seconds:g} s to summarise.") from None
        except ContextOverflow:
            self._in_vain += 1
            raise
        self._in_vain = 0
        self.progress.ended(number, job.target_tokens)
        usage = self._models.with_cost(model, draft.usage) if draft.usage else Usage()
        self._usage += usage
        if self._count_usage is not None:
            await self._count_usage(usage)
        return self._checked(draft, source, job)

    def _model_call(
        self, model: str, request: Request, changed: Callable[[Draft], None], *, auxiliary: bool
    ) -> ModelCall:
        """An empty reply is an answer. Of an auxiliary model, so is that it cannot be reached."""
        provider = self._models.provider(model)

        def ask_again(error: ModelError) -> bool:
            return not isinstance(error, EmptyReply) and not (auxiliary and _is_outside(error))

        in_time = SECONDS_TO_REACH if auxiliary and not provider.slow_to_begin else None
        return ModelCall(
            provider,
            request,
            self._pass_on,
            _nothing,
            ask_again=ask_again,
            seconds_to_send=in_time,
            changed=changed,
        )

    def _checked(self, draft: Draft, source: int, job: SummaryJob) -> str:
        """The prose, or _Failed where it is none that may replace its source."""
        text = "".join(draft.text).strip()
        if not text:
            raise _Failed("only tool calls" if draft.calls else "empty reply")
        size = self._count(text)
        if size >= source / 2 and size > job.target_tokens // 4:
            raise _Failed("the summary is not smaller than half of its source")
        cap = 2 * job.target_tokens
        return text if size <= cap else text[: len(text) * cap // size].rstrip() + " …"

    def _instructions(self, job: SummaryJob, previous: str) -> tuple[str, Template]:
        """What the summariser is told, and the template that says so."""
        names = {**job.names, "previous_summary": safe(previous), "target_tokens": job.target_tokens}
        if job.template is not None:
            text = fill_template(job.template.text, job.template.path, names)
            return text.rstrip("\n"), job.template
        return self._templates.rendered("summary", **names)

    def template(self, job: SummaryJob) -> Template:
        """The template by which `job` would be done now."""
        return self._instructions(job, "")[1]

    def _pass_on(self, event: Event) -> None:
        if isinstance(event, Retry | Progress):
            self._emit(event)


def _is_outside(error: Exception) -> bool:
    """Authentication and network: nothing that another model or a smaller request would change."""
    if isinstance(error, Unavailable):
        return error.status is None
    return isinstance(error, AuthenticationFailed)


async def _nothing() -> None:
    pass


async def _all(*work: Coroutine[None, None, str]) -> list[str]:
    """All results in order; the first failure cancels the rest."""
    tasks = [spawn(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
