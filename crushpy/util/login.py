"""The name of the user who runs crushpy."""

import os
from functools import cache


@cache
def login_name() -> str:
    """Return the login name for the process's user id; the environment is not consulted."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container the id may have no name
        return f"uid {os.getuid()}"
