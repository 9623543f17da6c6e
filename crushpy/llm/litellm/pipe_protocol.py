"""The messages between crushpy and its litellm process: one line of JSON each. Does not import litellm."""

from typing import Any

import msgspec

from crushpy.core.messages import Data, Json
from crushpy.http import Timeouts
from crushpy.llm.errors import ModelError
from crushpy.llm.protocol import Piece, Request
from crushpy.security.sanitize import encodable

LOAD_FAILED = 3
"""Exit code of the process if litellm cannot be imported; the last line on stderr says why."""


class ProviderAccess(Data, frozen=True):
    """How to reach a provider. litellm reads the environment if there is no key or address.

    `extra` holds further arguments of every call.
    """

    api_base: str | None = None
    api_key: str | None = None
    key_variable: str = ""
    extra: Json = msgspec.field(default_factory=dict[str, Any])
    timeouts: Timeouts = Timeouts()


class StartCall(Data, frozen=True, tag="call"):
    """Answered by `Chunk` until one holds `Done`, or by one `Failure`."""

    id: int
    access: ProviderAccess
    request: Request


class CancelCall(Data, frozen=True, tag="cancel"):
    id: int


class Ready(Data, frozen=True, tag="ready"):
    """litellm is imported."""


class Chunk(Data, frozen=True, tag="chunk"):
    id: int
    piece: Piece


class Failure(Data, frozen=True, tag="failure"):
    """A serialized ModelError that ended a call."""

    id: int
    kind: str
    fields: Json

    @classmethod
    def from_error(cls, call: int, error: ModelError) -> "Failure":
        return cls(call, error.kind, vars(error))

    def to_error(self) -> ModelError:
        kinds = {kind.kind: kind for kind in ModelError.__subclasses__()}
        error = kinds.get(self.kind, ModelError)(self.fields["message"], self.fields["hint"])
        vars(error).update(self.fields)
        return error


ToHelper = StartCall | CancelCall
FromHelper = Ready | Chunk | Failure

decode_to_helper = msgspec.json.Decoder(ToHelper).decode
decode_from_helper = msgspec.json.Decoder(FromHelper).decode


def encode_line(message: ToHelper | FromHelper) -> bytes:
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate in a server's reply
        return msgspec.json.encode(encodable(msgspec.to_builtins(message))) + b"\n"
