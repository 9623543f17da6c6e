"""Takes sockets away from this process and all that it starts (seccomp): Landlock knows few kinds of them."""

import ctypes
import errno
import os

_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_OTHER_NUMBERS = 0x40000000
"""Where x86 has the same calls once more."""
_SET_SECCOMP, _FILTER = 22, 2
_REACH_THE_NETWORK = (2, 10, 16)
"""AF_INET, AF_INET6, AF_NETLINK."""
_DATAGRAM, _KIND = 2, 0xF
_IO_URING = 425
"""It makes sockets without the call for them."""

_MACHINES = {  # architecture, socket, socketpair, calls that reach the keys which the kernel keeps for a user
    "x86_64": (0xC000003E, 41, 53, (248, 249, 250)),
    "aarch64": (0xC00000B7, 198, 199, (217, 218, 219)),
}
Step = tuple[int, int, int, int]


def filters_sockets() -> bool:
    """Whether this machine's calls are known here."""
    return os.uname().machine in _MACHINES


def filter_sockets(library: ctypes.CDLL, *, network: bool) -> None:
    """From now on no sockets but pairs can be made; with `network` its own too. Raises OSError."""
    program = _program(*_MACHINES[os.uname().machine], network=network)
    packed = b"".join(
        code.to_bytes(2, "little") + bytes((yes, no)) + value.to_bytes(4, "little")
        for code, yes, no, value in program
    )
    steps = ctypes.create_string_buffer(packed, len(packed))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))

    whole = Program(len(program), ctypes.addressof(steps))
    if library.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(whole), 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _program(
    architecture: int, socket: int, pair: int, keys: tuple[int, ...], *, network: bool
) -> list[Step]:
    """Each test jumps over the refusal that follows it where it does not apply."""
    steps: list[Step] = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), _refuse(errno.ENOSYS)]
    steps += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _OTHER_NUMBERS), _refuse(errno.ENOSYS)]
    for number in (_IO_URING, *keys):
        steps += [(_EQUAL, 0, 1, number), _refuse(errno.ENOSYS)]
    steps += [
        (_EQUAL, 0, 4, pair),
        (_LOAD, 0, 0, _SECOND_ARGUMENT),
        (_AND, 0, 0, _KIND),
        (_EQUAL, 0, 1, _DATAGRAM),  # one of these could be turned to another address
        _refuse(errno.EACCES),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if not network:
        steps += [(_EQUAL, 0, 1, socket), _refuse(errno.ENETUNREACH)]
    else:
        steps += [(_EQUAL, 1, 0, socket), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
        for family in _REACH_THE_NETWORK:
            steps += [(_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]
        steps.append(_refuse(errno.EACCES))
    return [*steps, (_RETURN, 0, 0, _ALLOW)]


def _refuse(error: int) -> Step:
    return (_RETURN, 0, 0, _REFUSE | error)
