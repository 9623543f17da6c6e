"""The name of the user who runs crushpy."""

import os
from functools import cache


@cache
def user_name(number: int) -> str:
    """Return the login name for a user id; the environment is not consulted."""
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # in a container the id may have no name
        return f"user {number}"


def login_name() -> str:
    """Return the login name of the process's user."""
    return user_name(os.getuid())
