"""The answer to `initialize`: given before asyncio and msgspec are imported, because an editor waits."""

import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from crushpy import __version__

_ANSWER = Path(__file__).with_name("initialize.json")


def shake_hands() -> tuple[tuple[BinaryIO, BinaryIO], bytes, dict[str, Any] | None]:
    """The pipes to the client, a line that is still to be answered, and the capabilities of the client."""
    # Pipes of our own: anything that is printed goes to stderr.
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    first = incoming.readline()
    capabilities = _answer(first, outgoing)
    return (incoming, outgoing), first if capabilities is None else b"", capabilities


def _answer(line: bytes, outgoing: BinaryIO) -> dict[str, Any] | None:
    """Answers a valid `initialize` and returns the capabilities of the client; else None."""
    try:
        message: Any = json.loads(line)
        capabilities: dict[str, Any] = message["params"].get("clientCapabilities") or {}
        if message["method"] != "initialize" or type(message["params"]["protocolVersion"]) is not int:
            return None
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": initialize_result(capabilities)}
        outgoing.write(json.dumps(answer).encode() + b"\n")
        outgoing.flush()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError):
        return None
    return capabilities


def initialize_result(capabilities: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(_ANSWER.read_bytes())
    answer["agentInfo"]["version"] = __version__
    auth: dict[str, Any] = capabilities.get("auth") or {}
    if not auth.get("terminal"):
        answer["authMethods"] = [way for way in answer["authMethods"] if way.get("type") != "terminal"]
    return answer
