"""Remembers which models accept the context status only inside the last message."""

from typing import TYPE_CHECKING

import msgspec

from crushpy.llm.errors import BadRequest, ModelError, Unavailable
from crushpy.llm.protocol import Done, Request

if TYPE_CHECKING:
    from crushpy.llm.error_reader import ErrorBody


class StatusFallback:
    """Remembers which models of one provider accept the status only inside the last message.

    Some chat templates refuse a system message at the end. A provider learns that from one refusal, sends
    the request again, and tells the engine, which saves it.
    """

    def __init__(self) -> None:
        self._appended: set[str] = set()
        """Models whose server refuses a system message at the end."""

    def placed(self, request: Request) -> Request:
        """The request in the form that its server takes."""
        if request.model not in self._appended:
            return request
        return msgspec.structs.replace(request, status_placement="append")

    def learn(self, request: Request, failure: ModelError, status: int, body: "ErrorBody") -> bool:
        """Whether this refusal was about the status; then the request is worth sending again."""
        from crushpy.llm.error_reader import refuses_late_system

        if not _at_the_end(request) or request.model in self._appended:
            return False
        if not isinstance(failure, BadRequest | Unavailable) or not refuses_late_system(status, body):
            return False
        self._appended.add(request.model)
        return True

    def mark(self, request: Request, done: Done) -> Done:
        """`done`, saying so where the status was moved."""
        if not _at_the_end(request) or request.model not in self._appended:
            return done
        return msgspec.structs.replace(done, status_moved=True)


def _at_the_end(request: Request) -> bool:
    return bool(request.status) and request.status_placement != "append"
