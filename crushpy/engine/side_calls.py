"""Small model calls beside the conversation: a title, a short summary, a test of a model."""

import asyncio
import logging
import time
from collections.abc import Sequence

from crushpy.context.render import message_text, seed_text
from crushpy.context.tags import element
from crushpy.core.errors import CrushpyError
from crushpy.core.events import SideAnswer
from crushpy.core.messages import Message, Text, Usage
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.models import Models
from crushpy.engine.session.session import TITLE_LENGTH
from crushpy.engine.step.model_call import ModelCall
from crushpy.llm.errors import CutStream, EmptyReply, TimedOut
from crushpy.llm.model_listing import open_provider
from crushpy.llm.protocol import Done, Request
from crushpy.security.sanitize import one_line
from crushpy.settings.schema import Settings
from crushpy.util.spawn import spawn

log = logging.getLogger(__name__)

TITLE_TOKENS = 60
ASIDE_TOKENS = 2_000
TITLE_EXCERPT_CHARS = 1_500
"""Of the prompt and of the reply."""
PROBE_TIMEOUT_S = 60.0
"""litellm may have to be loaded first, and a local server may have to load the model."""
PROBE_OUTPUT_TOKENS = 16
"""Some providers allow no fewer."""


async def ask_once(
    models: Models, model: str, system: str, tag: str, text: str, limit: int, question: str = ""
) -> tuple[str, Usage]:
    """The reply of `model` to `text`, sent as data inside a tag, and to the `question` after it. Raises
    ModelError."""
    request = Request(
        model=model,
        system=system,
        messages=(Message("aside", "user", (Text(element(tag, text) + question),)),),
        max_output_tokens=limit,
    )
    await models.prepare(model)
    call = ModelCall(
        models,
        request,
        lambda _: None,
        may_retry=lambda error: not isinstance(error, EmptyReply),  # an empty reply is final
    )
    draft = await call.run()
    return "".join(draft.text).strip(), models.with_cost(model, draft.end.usage or Usage())


class TitleFinder:
    """Gives a new conversation of the app a title after its first turn. A failure is only logged."""

    def __init__(self, scope: AgentScope) -> None:
        self._scope = scope
        self._untitled = scope.interactive and not scope.session.stored
        self._task: asyncio.Task[None] | None = None

    def begin(self, prompt: str) -> None:
        """A turn is done, which began with `prompt`."""
        if self._untitled:
            self._untitled = False
            if not self._scope.models.has_one_slot(self._model):  # the next prompt would have to wait
                self._task = spawn(self._find(prompt))

    async def _find(self, prompt: str) -> None:
        session, services = self._scope.session, self._scope.services
        replies = (message for message in reversed(session.history) if message.role == "assistant")
        reply = next((reply.text for reply in replies if reply.says_something), "")
        text = f"User: {prompt[:TITLE_EXCERPT_CHARS]}\n\nAgent: {reply[:TITLE_EXCERPT_CHARS]}"
        system = services.templates.render("title")
        try:
            answer, usage = await ask_once(
                self._scope.models, self._model, system, "transcript", text, TITLE_TOKENS
            )
            await session.count(usage)
            title = one_line(answer).strip().strip("\"'`*# ").rstrip(".")
            if 0 < len(title) <= TITLE_LENGTH:
                await session.set_title(title)
        except CrushpyError as error:
            log.info("no title: %s", error.message)

    @property
    def _model(self) -> str:
        return self._scope.services.settings.small_model or self._scope.session.info.model

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


async def answer_aside(scope: AgentScope, history: Sequence[Message], question: str) -> SideAnswer:
    """The answer to a side question about a conversation. Raises ModelError."""
    text = "\n\n".join(
        seed_text(message.seed) if message.seed else message_text(message) for message in history
    )
    system, model = scope.services.templates.render("aside"), scope.session.info.model
    asked = (system, "transcript", text, ASIDE_TOKENS, f"\n\n{question}")
    return SideAnswer(question, *await ask_once(scope.models, model, *asked))


async def probe_model(model: str, settings: Settings) -> str:
    """Tests key, name and address of a model with the smallest possible request. Raises ModelError."""
    provider, _ = await open_provider(model, settings)
    hello = Message(id="hello", role="user", parts=(Text("Say OK."),))
    request = Request(model, "Answer with one word.", (hello,), max_output_tokens=PROBE_OUTPUT_TOKENS)
    started = time.monotonic()
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            async for piece in provider.stream(request):
                if isinstance(piece, Done):
                    return f"{model} answered after {time.monotonic() - started:.1f} s."
    except TimeoutError as error:
        raise TimedOut(
            f"{model} did not answer within {PROBE_TIMEOUT_S:g} s.",
            "Check the network, or try another model.",
        ) from error
    finally:
        await provider.close()
    raise CutStream(f"{model} ended its answer too soon.")
