"""The messages between crushpy and the process that talks to MCP servers: one line of JSON each."""

from typing import Any, Literal

import msgspec

from crushpy.core.messages import Data, Json
from crushpy.security.sanitize import to_json
from crushpy.settings.schema import McpServerSettings


class ServerSpec(McpServerSettings, frozen=True):
    """How to reach a server. Its command is as it is run, `env` the whole environment of that."""

    client_secret: str = ""
    private_hosts: bool = False
    """Whether endpoints on this machine and in private networks are accepted, and http on loopback."""
    locks: str = ""
    """The folder for locks between processes that refresh the same token."""


Verb = Literal["connect", "login", "call", "read", "prompt", "lists", "disconnect", "cancel", "answer"]


class McpOrder(Data, frozen=True):
    """To the process. Every order but `cancel`, `answer` and `disconnect` gets a `result` or an `error`."""

    id: int
    verb: Verb
    server: str = ""
    spec: ServerSpec | None = None
    name: str = ""
    arguments: Json = msgspec.field(default_factory=dict[str, Any])


class McpReport(Data, frozen=True):
    """From the process, about the order `id`.

    `progress`, `elicit` and `open` (a URL to log in at) come before the end of an order; `lists` and `closed`
    are about a server and have the id 0.
    """

    id: int
    kind: Literal["result", "error", "progress", "elicit", "open", "lists", "closed"]
    server: str = ""
    data: Json = msgspec.field(default_factory=dict[str, Any])


decode_order = msgspec.json.Decoder(McpOrder).decode
decode_server_report = msgspec.json.Decoder(McpReport).decode


def encode_message(message: McpOrder | McpReport) -> bytes:
    return to_json(message) + b"\n"
