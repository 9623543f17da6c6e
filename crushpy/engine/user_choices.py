"""What the user chooses for a conversation: model, effort, compaction method and mode."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import msgspec

from crushpy.core.access import Mode
from crushpy.core.events import ModeChanged
from crushpy.engine.agents.agent import Agent
from crushpy.engine.run_slot import RunSlot
from crushpy.storage.records import StorageError
from crushpy.util.uncancellable import uncancellable

TOOLS_CHANGE = "The tools change too: the next request is sent uncached, and earlier thoughts may be lost."


class Choices:
    """From now on, or for one turn."""

    def __init__(self, agent: Agent, run_slot: RunSlot) -> None:
        scope, services = agent.scope, agent.scope.services
        self._session, self._models, self._emit = scope.session, scope.models, scope.emit
        self._approvals, self._user_settings = services.approvals, services.user_settings
        self._policy, self._run_slot = agent.policy, run_slot
        self.select_mode = services.approvals.select_mode

    @asynccontextmanager
    async def for_turn(self, mode: Mode | None, model: str) -> AsyncGenerator[None]:
        """Applies a mode and a model to one turn, unless the user chooses others meanwhile. Raises if no
        provider serves the model."""
        usual_mode, usual_model = self._approvals.mode, self._session.info.model
        if mode is not None:
            self._approvals.mode, self._approvals.mode_is_temporary = mode, True
            self._emit(ModeChanged(mode))
        try:
            if model:
                await self.select_model(model)
            yield
        finally:
            if model and self._session.info.model == model:
                with suppress(StorageError):  # the next write reports it
                    await uncancellable(self._use_model(usual_model))
            if mode is not None and self._approvals.mode_is_temporary:
                self._approvals.mode, self._approvals.mode_is_temporary = usual_mode, False
                self._emit(ModeChanged(usual_mode))

    async def select_model(self, model: str, *, for_all: bool = False) -> None:
        """Switches this conversation's model from the next request on; `for_all`: also that of new ones.
        Raises if no provider serves it."""
        self._models.require_known(model)
        if not self._run_slot.busy:
            await self._models.forget(model)  # its key may have just been stored
        await self._models.prepare(model, tools=True)
        if for_all:
            self._user_settings.save_choice("model", model)
            self._user_settings.replace(model=model)
        await self._use_model(model)

    async def _use_model(self, model: str) -> None:
        await self._session.update(model=model)
        await self._policy.model_replaced()

    async def select_compaction(self, method: str) -> str:
        """Switches the compaction method: saved, and applied to the next request. Returns what it costs."""
        info = self._session.info
        changed = method != info.compaction and any(
            message.role == "assistant" for message in self._session.history
        )
        edits_tools = changed and self._models.placement(info.model) != "keep"
        self._user_settings.save_choice("compaction.method", method)
        compaction = self._user_settings.current.compaction
        self._user_settings.replace(compaction=msgspec.structs.replace(compaction, method=method))
        await self._session.update(compaction=method)
        if method == "llm":  # which prepares nothing
            self._policy.preparations.discard()
        return TOOLS_CHANGE if edits_tools else ""

    def select_effort(self, effort: str) -> None:
        """Sets the thinking effort from the next request on."""
        self._user_settings.save_choice("effort", effort)
        self._user_settings.replace(effort=effort)
        self._models.settings = self._user_settings.current

    def toggle_yolo(self) -> bool:
        """Allows everything that is not denied, or asks again. For this conversation in this process only."""
        self._approvals.yolo = not self._approvals.yolo
        return self._approvals.yolo
