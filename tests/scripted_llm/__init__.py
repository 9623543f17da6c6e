"""A real HTTP server on loopback that plays a model from a script, for tests.

def test_something(llm: ScriptedLLM):
    llm.script("Hello", Reply(calls=[Call("bash", {"command": "ls"})]), RateLimit(retry_after=0.01))
    ... point the program at llm.api_base (OpenAI's protocols) or llm.url (Anthropic, Gemini) ...
    assert llm.requests[0].body["model"] == "test"
"""

from scripted_llm.replies import (
    Call,
    Cut,
    Empty,
    Fail,
    Garbage,
    KeepAlive,
    NoFinish,
    Overflow,
    RateLimit,
    Raw,
    Reply,
    Stall,
    StreamError,
)
from scripted_llm.server import Recorded, ScriptedLLM

__all__ = [
    "Call",
    "Cut",
    "Empty",
    "Fail",
    "Garbage",
    "KeepAlive",
    "NoFinish",
    "Overflow",
    "RateLimit",
    "Raw",
    "Recorded",
    "Reply",
    "ScriptedLLM",
    "Stall",
    "StreamError",
]
