"""The Python API: `import crushpy` offers what is listed in `PUBLIC_NAMES`.

It runs in the caller's process. The engine has an event loop in a thread of its own, so that the API can be
called from any thread and from inside another event loop.
"""

PUBLIC_NAMES = {
    "Agent": "crushpy.sdk.python_agent",
    "Approval": "crushpy.sdk.python_agent",
    "Call": "crushpy.sdk.scripted_model",
    "Conversation": "crushpy.sdk.stored_conversation",
    "Error": "crushpy.sdk.python_agent",
    "Expect": "crushpy.sdk.scripted_model",
    "Fault": "crushpy.sdk.scripted_model",
    "Limits": "crushpy.sdk.python_agent",
    "Refusal": "crushpy.sdk.python_agent",
    "Reply": "crushpy.sdk.python_agent",
    "ScriptedModel": "crushpy.sdk.scripted_model",
    "events": "crushpy.core",
    "tool": "crushpy.sdk.function_tool",
}
"""Each public name, and the module that defines it. Stable from version 0.2 on."""
