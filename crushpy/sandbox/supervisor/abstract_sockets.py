"""Takes the host's abstract sockets away from a keeper that shares its network (Landlock of Linux 6.12)."""

import ctypes
import os

_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_ASK_VERSION = 1
_FIRST_WITH_SCOPES = 6
_SCOPE_ABSTRACT_SOCKETS = 1


def leave_out_foreign_abstract_sockets() -> bool:
    """Whether this process, and all it starts, reach only abstract sockets of their own from now on."""
    call = ctypes.CDLL(None).syscall
    if call(_CREATE_RULESET, None, 0, _ASK_VERSION) < _FIRST_WITH_SCOPES:
        return False
    wanted = (ctypes.c_uint64 * 3)(0, 0, _SCOPE_ABSTRACT_SOCKETS)
    ruleset = call(_CREATE_RULESET, ctypes.byref(wanted), ctypes.sizeof(wanted), 0)
    if ruleset < 0:
        return False
    done = call(_RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return done
