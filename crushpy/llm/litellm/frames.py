"""What the app and litellm's process say to each other: one line of JSON a frame. Does not import litellm."""

from typing import Any

import msgspec

from crushpy.core.messages import Data, Json
from crushpy.http import Timeouts
from crushpy.llm.errors import ModelError
from crushpy.llm.protocol import Piece, Request
from crushpy.security.sanitize import encodable


class ProviderAccess(Data, frozen=True):
    """How a provider's requests are let in, and how long they wait.

    Without a key or an address, litellm looks in the environment. `extra`: further arguments of every call.
    """

    api_base: str | None = None
    api_key: str | None = None
    key_variable: str = ""
    extra: Json = msgspec.field(default_factory=dict[str, Any])
    timeouts: Timeouts = Timeouts()


# --- from the app ---------------------------------------------------------------------------------------


class Ask(Data, frozen=True, tag="ask"):
    """Answered by `Said` until one of them is `Done`, by one `Failed`, or by `Forgotten`: then asked anew."""

    call: int
    provider: int
    """What is learnt of a server is kept for this one."""
    access: ProviderAccess
    request: Request
    """With the messages that were not sent before."""
    history: int = 0
    """The number of the history, which is kept for the next request; 0: of none."""
    kept: int = 0
    """How many messages of that history come before those of the request."""


class Stop(Data, frozen=True, tag="stop"):
    """Nobody listens to this call any more."""

    call: int


class LetGo(Data, frozen=True, tag="let_go"):
    """This provider is done: its idle connections can be closed."""

    provider: int


class Ping(Data, frozen=True, tag="ping"):
    """Answered by `Pong` at once, also while litellm loads."""


# --- from litellm's process -----------------------------------------------------------------------------


class Ready(Data, frozen=True, tag="ready"):
    """litellm is loaded."""


class Pong(Data, frozen=True, tag="pong"):
    pass


class Broken(Data, frozen=True, tag="broken"):
    """litellm cannot be loaded; the process ends."""

    message: str


class Forgotten(Data, frozen=True, tag="forgotten"):
    """The history of this call is not known here: it must be sent whole."""

    call: int


class Said(Data, frozen=True, tag="said"):
    call: int
    piece: Piece


class Failed(Data, frozen=True, tag="failed"):
    """A ModelError of a call, as data."""

    call: int
    kind: str
    message: str
    hint: str
    status: int | None = None
    retry_after: float | None = None
    limit: int | None = None

    @classmethod
    def from_error(cls, call: int, error: ModelError) -> "Failed":
        retry_after: float | None = getattr(error, "retry_after", None)
        limit: int | None = getattr(error, "limit", None)
        return cls(call, error.kind, error.message, error.hint, error.status, retry_after, limit)

    def error(self) -> ModelError:
        error = _KINDS.get(self.kind, ModelError)(self.message, self.hint, status=self.status)
        for name in ("retry_after", "limit"):
            if hasattr(error, name):
                setattr(error, name, getattr(self, name))
        return error


_KINDS = {kind.kind: kind for kind in ModelError.__subclasses__()}

AppFrame = Ask | Stop | LetGo | Ping
HelperFrame = Ready | Pong | Broken | Forgotten | Said | Failed

_encoder = msgspec.json.Encoder()
decode_app_frame = msgspec.json.Decoder(AppFrame).decode
decode_helper_frame = msgspec.json.Decoder(HelperFrame).decode


def encode_frame(frame: AppFrame | HelperFrame) -> bytes:
    try:
        return _encoder.encode(frame) + b"\n"
    except UnicodeEncodeError:  # half a letter, which a server may well send
        return _encoder.encode(encodable(msgspec.to_builtins(frame))) + b"\n"


class LineReader:
    """Puts lines together again, however they were cut."""

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        first, *others = data.split(b"\n")
        self._unfinished.append(first)
        if not others:
            return []
        lines = [b"".join(self._unfinished), *others[:-1]]
        self._unfinished = [others[-1]]
        return lines
