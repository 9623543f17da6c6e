"""The Python API: `import crushpy` offers what is listed in `PUBLIC_NAMES`.

It runs in the caller's process. The engine has an event loop in a thread of its own, so that the API can be
called from any thread and from inside another event loop.
"""

_MODULES = {
    "crushpy.core": ("events",),
    "crushpy.sdk.function_tool": ("tool",),
    "crushpy.sdk.python_agent": ("Agent", "Approval", "Error", "Limits", "Refusal", "Reply"),
    "crushpy.sdk.scripted_model": ("Call", "Expect", "Fault", "ScriptedModel"),
    "crushpy.sdk.stored_conversation": ("Conversation",),
}
PUBLIC_NAMES = {name: module for module, names in _MODULES.items() for name in names}
"""Each public name, and the module that defines it. Stable from version 0.2 on."""
