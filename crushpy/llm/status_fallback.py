"""Remembers which models accept the context status only inside the last message."""

from typing import TYPE_CHECKING

import msgspec

from crushpy.llm.errors import BadRequest, ModelError, Unavailable
from crushpy.llm.protocol import Done, Request

if TYPE_CHECKING:
    from crushpy.llm.error_reader import ErrorBody


class StatusFallback:
    """The models of one provider that accept the status only inside the last message.

    Some chat templates refuse a system message at the end. A provider learns that from one refusal, sends
    the request again, and reports it to the engine, which saves it.
    """

    def __init__(self) -> None:
        self._refusing_models: set[str] = set()

    def place_status(self, request: Request) -> Request:
        """The request in the form that its server accepts."""
        if request.model not in self._refusing_models:
            return request
        return msgspec.structs.replace(request, status_placement="append")

    def learn_refusal(self, request: Request, failure: ModelError, body: "ErrorBody") -> bool:
        """Whether this refusal was about the status, so that the request is worth sending again."""
        from crushpy.llm.error_reader import refuses_late_system

        refused = (
            _is_trailing(request)
            and request.model not in self._refusing_models
            and isinstance(failure, BadRequest | Unavailable)
            and refuses_late_system(failure.status or 0, body)
        )
        if refused:
            self._refusing_models.add(request.model)
        return refused

    def mark_moved(self, request: Request, done: Done) -> Done:
        """`done`, with `status_moved` set if the status was moved."""
        if not _is_trailing(request) or request.model not in self._refusing_models:
            return done
        return msgspec.structs.replace(done, status_moved=True)


def _is_trailing(request: Request) -> bool:
    return bool(request.status) and request.status_placement != "append"
