"""Pins that the agent proposes with `new_session`: the user decides, and without a user nothing is pinned."""

from collections.abc import Callable, Sequence

from crushpy.core.errors import UsageError
from crushpy.core.events import Event, Notice
from crushpy.core.messages import ToolCall, counted
from crushpy.engine.approvals import Approvals
from crushpy.engine.compaction.pin_service import PinService

REASON = "the agent proposes to pin this: every fresh start would carry it word for word"


class PinProposals:
    """Asks once about each text. Whatever is said, the fresh start goes on."""

    def __init__(self, board: PinService, approvals: Approvals, emit: Callable[[Event], None]) -> None:
        self._board = board
        self._approvals = approvals
        self._emit = emit
        self._decided: set[str] = set()

    async def offer(self, call: ToolCall, proposed: Sequence[str]) -> None:
        known = self._decided.union(await self._board.texts())
        stripped = dict.fromkeys(one.strip() for one in proposed)
        texts = [text for text in stripped if text and text not in known]
        if not texts:
            return
        if not self._approvals.interactive:
            many = counted(len(texts), "pin")
            self._emit(Notice(f"The agent proposed {many}; nobody can be asked here, so nothing is pinned."))
            return
        question = ToolCall(call.id, call.name, {"pin": "\n".join(f"- {text}" for text in texts)})
        accepted = await self._approvals.confirm(question, REASON)
        self._decided.update(texts)
        for text in texts if accepted else ():
            try:
                await self._board.add_text(text)
            except UsageError as error:
                self._emit(Notice(f"Not pinned: {error}", "warning"))
