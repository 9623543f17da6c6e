"""Model calls of a turn whose drafts are kept; what came to nothing is paid, and its thinking kept."""

from collections.abc import Awaitable, Callable

import msgspec

from crushpy.core.events import Event, UsageReported
from crushpy.core.messages import Usage
from crushpy.engine.models import Models
from crushpy.engine.session.session import LiveSession
from crushpy.engine.turn.draft_autosave import DraftAutosave
from crushpy.engine.turn.limits import Spent
from crushpy.engine.turn.model_call import Draft, ModelCall
from crushpy.llm.errors import EmptyReply, ModelError
from crushpy.llm.protocol import Request
from crushpy.util.uncancellable import uncancellable


class RecordedCalls:
    def __init__(
        self, session: LiveSession, models: Models, spent: Spent, emit: Callable[[Event], None]
    ) -> None:
        self._session = session
        self._models = models
        self._spent = spent
        self._emit = emit

    def begin(self, request: Request, before_reply: Callable[[], Awaitable[None]]) -> "RecordedCall":
        keeper = DraftAutosave(self._session.store, self._session.info.id, request.model)

        async def void(draft: Draft, error: ModelError) -> None:
            await keeper.forget()
            await self._count(draft, error)

        provider = self._models.provider(request.model)
        call = RecordedCall(provider, request, self._emit, before_reply, changed=keeper.changed, void=void)
        call.keeper = keeper
        return call

    async def _count(self, draft: Draft, error: ModelError) -> None:
        """A reply has failed; it may be asked for again after this."""
        empty = isinstance(error, EmptyReply)
        if draft.usage is None and not empty:
            return
        message = self._models.priced(await draft.message(self._session.info.model, set()))
        used = message.usage or Usage()
        self._spent.use(used)
        if empty and not draft.thinking.is_blank:
            await uncancellable(
                self._session.add_reply(msgspec.structs.replace(message, parts=message.parts[:1]))
            )
            if message.usage is not None:
                self._emit(UsageReported(used, self._session.usage))
        elif used.total:
            await uncancellable(self._session.count(used))


class RecordedCall(ModelCall):
    """A model call that stops keeping its draft when it is over, however it ends."""

    keeper: DraftAutosave

    async def run(self) -> Draft:
        try:
            return await super().run()
        finally:
            self.keeper.stop()
