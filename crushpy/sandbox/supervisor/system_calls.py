"""Restricts the system calls of this process and its children with seccomp. Nothing here can be undone."""

import ctypes
import errno
import os

_LOAD, _EQUAL, _AT_LEAST, _AND, _JUMP, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x05, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FAMILY, _KIND, _PROTOCOL = 0, 4, 16, 24, 32
"""Offsets of what a filter sees: the number of the call, and the first three arguments."""
_X32_NUMBERS = 0x40000000
"""The x32 variants of the system calls."""
_SET_SECCOMP, _FILTER = 22, 2
_IO_URING = 425
"""It can create sockets without the socket call."""
_OPEN_BY_STRUCT = 437
"""`openat2`, whose arguments are in memory, out of a filter's sight: programs fall back to `openat`."""
_SET_USER_OR_GROUP, _CREATES = 0o6000, 0o100 | 0o20000000
"""Modes that make a program run as another user, and the flags with which opening uses a mode."""
_DATAGRAM, _SOCKET_KIND_MASK = 2, 0xF
_NETLINK, _NETLINK_ROUTE = 16, 0
NETWORK_FAMILIES = (2, 10, _NETLINK)
"""AF_INET, AF_INET6, and AF_NETLINK for the list of interfaces and routes only."""
_LOCAL_AND_NETWORK_FAMILIES = (1, *NETWORK_FAMILIES)
"""With AF_UNIX. Others reach the host or the kernel past the network namespace, AF_VSOCK first."""


_Modes = dict[int, int]
"""The index of the argument with a mode, by the number of the call."""
_SYSTEM_CALLS: dict[str, tuple[tuple[int, int, int, tuple[int, ...], _Modes, _Modes, int], ...]] = {
    # The machine's own, and those of its 32-bit programs: as `_architecture_steps` takes them.
    "x86_64": (
        (
            *(0xC000003E, 41, 53, (248, 249, 250)),
            *({90: 1, 91: 1, 268: 2, 452: 2, 85: 1, 133: 1, 259: 2}, {2: 2, 257: 3}, 0),
        ),
        (
            *(0x40000003, 359, 360, (286, 287, 288)),
            *({15: 1, 94: 1, 306: 2, 452: 2, 8: 1, 14: 1, 297: 2}, {5: 2, 295: 3}, 102),
        ),
    ),
    "aarch64": (
        (0xC00000B7, 198, 199, (217, 218, 219), {52: 1, 53: 2, 452: 2, 33: 2}, {56: 3}, 0),
        (
            *(0x40000028, 281, 288, (309, 310, 311)),
            *({15: 1, 94: 1, 333: 2, 452: 2, 8: 1, 14: 1, 324: 2}, {5: 2, 322: 3}, 0),
        ),
    ),
}
_CALL_SOCKET, _CALL_PAIR = 1, 8
Step = tuple[int, int, int, int]
library = ctypes.CDLL(None, use_errno=True)


def filters_system_calls() -> bool:
    """Whether the system call numbers of this machine are known."""
    return os.uname().machine in _SYSTEM_CALLS


def restrict_sockets() -> None:
    """Allows only local and internet sockets, if the system call numbers are known. Raises OSError."""
    if filters_system_calls():
        filter_system_calls(_LOCAL_AND_NETWORK_FAMILIES, datagram_pairs=True)


def filter_system_calls(families: tuple[int, ...], *, datagram_pairs: bool) -> None:
    """Allows only sockets of these families from now on, and unix socket pairs. Raises OSError.

    `datagram_pairs`: a datagram socket of a pair can be connected to another address.
    """
    program: list[Step] = []
    for row in _SYSTEM_CALLS[os.uname().machine]:
        program += _architecture_steps(*row, families=families, datagram_pairs=datagram_pairs)
    program.append(_refuse(errno.ENOSYS))  # a call of another architecture
    packed = b"".join(
        code.to_bytes(2, "little") + bytes((yes, no)) + value.to_bytes(4, "little")
        for code, yes, no, value in program
    )
    steps = ctypes.create_string_buffer(packed, len(packed))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))

    compiled = Program(len(program), ctypes.addressof(steps))
    check_result(library.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(compiled), 0, 0))


def check_result(result: int) -> int:
    """The result of a call of `library`. Raises OSError if it failed."""
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def _architecture_steps(
    architecture: int,
    socket: int,
    pair: int,
    keys: tuple[int, ...],
    modes: _Modes,
    opens: _Modes,
    call: int,
    *,
    families: tuple[int, ...],
    datagram_pairs: bool,
) -> list[Step]:
    """The filter for the calls of one architecture. Each test skips the steps after it if it does not apply.

    `keys`: calls that reach the kernel's keyrings. `modes`: those that set a mode. `opens`: those that set it
    if they create a file; the flags are the argument before it. `call`: `socketcall`, whose arguments are in
    memory, out of a filter's sight; 0 if there is none.
    """
    steps: list[Step] = [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32_NUMBERS), _refuse(errno.ENOSYS)]
    for number in (_IO_URING, _OPEN_BY_STRUCT, *keys):
        steps += [(_EQUAL, 0, 1, number), _refuse(errno.ENOSYS)]
    for number, index in modes.items():
        steps += _if_call(number, _mode_steps(index))
    for number, index in opens.items():
        flags = [(_LOAD, 0, 0, _FAMILY + 8 * (index - 1)), (_AND, 0, 0, _CREATES)]
        flags += [(_EQUAL, 0, 1, 0), (_RETURN, 0, 0, _ALLOW)]
        steps += _if_call(number, [*flags, *_mode_steps(index)])
    steps += _if_call(socket, _family_steps(families))
    of_pair = [(_LOAD, 0, 0, _FAMILY), (_EQUAL, 1, 0, 1), _refuse(errno.EAFNOSUPPORT)]
    if not datagram_pairs:
        of_pair += [(_LOAD, 0, 0, _KIND), (_AND, 0, 0, _SOCKET_KIND_MASK)]
        of_pair += [(_EQUAL, 0, 1, _DATAGRAM), _refuse(errno.EACCES)]
    steps += _if_call(pair, [*of_pair, (_RETURN, 0, 0, _ALLOW)])
    if call:
        refused = [(_EQUAL, 0, 1, each) for each in (_CALL_SOCKET, _CALL_PAIR)]
        calls = [step for test in refused for step in (test, _refuse(errno.ENOSYS))]
        steps += _if_call(call, [(_LOAD, 0, 0, _FAMILY), *calls, (_RETURN, 0, 0, _ALLOW)])
    steps.append((_RETURN, 0, 0, _ALLOW))
    is_other = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_JUMP, 0, 0, len(steps))]
    return [*is_other, *steps]


def _mode_steps(index: int) -> list[Step]:
    """Refuses files that would run as their owner or group, also for other users of the machine."""
    steps: list[Step] = [(_LOAD, 0, 0, _FAMILY + 8 * index), (_AND, 0, 0, _SET_USER_OR_GROUP)]
    return [*steps, (_EQUAL, 1, 0, 0), _refuse(errno.EPERM), (_RETURN, 0, 0, _ALLOW)]


def _if_call(number: int, steps: list[Step]) -> list[Step]:
    return [(_EQUAL, 0, len(steps), number), *steps]


def _family_steps(families: tuple[int, ...]) -> list[Step]:
    if not families:
        return [_refuse(errno.ENETUNREACH)]
    steps: list[Step] = [(_LOAD, 0, 0, _FAMILY)]
    for family in families:
        allow = [(_RETURN, 0, 0, _ALLOW)]
        if family == _NETLINK:
            allow = [(_LOAD, 0, 0, _PROTOCOL), (_EQUAL, 0, 1, _NETLINK_ROUTE), *allow]
            allow.append(_refuse(errno.EPROTONOSUPPORT))
        steps += [(_EQUAL, 0, len(allow), family), *allow]
    return [*steps, _refuse(errno.EAFNOSUPPORT)]


def _refuse(error: int) -> Step:
    return (_RETURN, 0, 0, _REFUSE | error)
