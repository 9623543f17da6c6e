"""The messages between crushpy and the process that talks to MCP servers: one line of JSON each."""

from typing import Any, Literal

import msgspec

from crushpy.core.messages import Data, Json
from crushpy.sandbox.supervisor_handle import Wrapper
from crushpy.settings.schema import McpServerSettings


class ServerSpec(McpServerSettings, frozen=True):
    """How to reach a server. `env` is the whole environment of its command."""

    wrapper: Wrapper = Wrapper()
    """The sandbox around the command."""
    client_secret: str = ""
    private_hosts: bool = False
    """Whether endpoints on this machine and in private networks are accepted, and http on loopback."""
    locks: str = ""
    """The folder for locks between processes that refresh the same token."""


Verb = Literal["connect", "login", "call", "read", "prompt", "lists", "cancel", "answer"]


class McpOrder(Data, frozen=True):
    """To the process. Every order but `cancel` and `answer` gets a `result` or an `error`.

    `connect` is carried out until the connection ends; `cancel` ends it.
    """

    verb: Verb
    server: str = ""
    """The name of the connection, of which messages show what precedes `@`."""
    name: str = ""
    arguments: Json = msgspec.field(default_factory=dict[str, Any])
    spec: ServerSpec | None = None
    id: int = 0


class McpReport(Data, frozen=True):
    """From the process, about the order `id`.

    Before the end of an order come `progress` of a call, `open` (a URL to log in at), and for `connect` first
    `lists`, then whenever they change, and `elicit`.
    """

    id: int
    kind: Literal["result", "error", "progress", "elicit", "open", "lists"]
    data: Json = msgspec.field(default_factory=dict[str, Any])


decode_order = msgspec.json.Decoder(McpOrder).decode
decode_server_report = msgspec.json.Decoder(McpReport).decode
