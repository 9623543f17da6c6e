"""crushpy: a coding agent for the terminal that keeps its context in the open.

The Python API is described in docs/sdk.md. Its names are loaded when they are first used.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing `typing` would double the time that this module takes
if TYPE_CHECKING:
    from typing import Any

    from crushpy.core import events
    from crushpy.sdk.function_tool import tool
    from crushpy.sdk.python_agent import Agent, Approval, Error, Limits, Refusal, Reply
    from crushpy.sdk.scripted_model import Call, Expect, Fault, ScriptedModel
    from crushpy.sdk.stored_conversation import Conversation

__all__ = [
    "Agent",
    "Approval",
    "Call",
    "Conversation",
    "Error",
    "Expect",
    "Fault",
    "Limits",
    "Refusal",
    "Reply",
    "ScriptedModel",
    "events",
    "tool",
]


def __getattr__(name: str) -> "Any":
    if name not in __all__:
        raise AttributeError(f"module 'crushpy' has no attribute {name!r}")
    from importlib import import_module

    from crushpy.sdk import PUBLIC_NAMES

    home = PUBLIC_NAMES[name]
    return import_module(f"{home}.events") if name == "events" else getattr(import_module(home), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
