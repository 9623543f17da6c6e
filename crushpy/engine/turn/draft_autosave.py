"""Keeps what has come of a reply, a few times a second: a process that is killed loses no more than that."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from crushpy.core.errors import CrushpyError
from crushpy.core.ids import new_id
from crushpy.engine.turn.model_call import Draft
from crushpy.storage.store import Store
from crushpy.util.spawn import spawn

log = logging.getLogger(__name__)

PAUSE = 0.25
"""Seconds between two writes."""
LARGE = 100_000
"""Characters from which on a draft is written less often: a long reply costs no more than a short one."""


class DraftAutosave:
    """One for each model call. `changed` is cheap; the writing is done on the storage thread."""

    def __init__(self, store: Store, session_id: str, model: str) -> None:
        self._store = store
        self._session_id = session_id
        self._model = model
        self._id = new_id()
        self._draft: Draft | None = None
        self._due: asyncio.TimerHandle | None = None
        self._written = False

    def changed(self, draft: Draft) -> None:
        """More of the reply has come."""
        self._draft = draft
        if self._due is None:
            pause = PAUSE * max(1.0, draft.size / LARGE)
            self._due = asyncio.get_running_loop().call_later(pause, self._write)

    def _write(self) -> None:
        self._due = None
        message = self._draft.interrupted(self._model, self._id) if self._draft is not None else None
        if message is not None:
            self._written = True
            spawn(self._quietly(self._store.messages.save_draft(self._session_id, message)))

    def stop(self) -> None:
        """Nothing more is written: the reply is whole, and takes the draft with it when it is stored."""
        if self._due is not None:
            self._due.cancel()
            self._due = None

    async def forget(self) -> None:
        """What has come is void."""
        self.stop()
        if self._written:
            self._written = False
            await self._quietly(self._store.messages.delete_draft(self._session_id))

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except CrushpyError as error:  # told when the reply itself is to be stored
            log.info("no draft: %s", error.message)
