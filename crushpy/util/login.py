"""Who runs crushpy, as the system names them."""

import os
from functools import cache


@cache
def login_name() -> str:
    """By the user's id, not by what the environment says."""
    if os.name != "posix":
        return os.environ.get("USERNAME", "")
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run us under an id that has no name
        return f"uid {os.getuid()}"
