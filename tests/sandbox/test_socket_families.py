"""Sockets in a sandbox are local or of the internet; others reach the host or the kernel past the network."""

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from confined import bash, confined, each_sandbox, needs_sandbox

from crushpy.core.access import Privileges
from crushpy.sandbox.finding import Sandbox

__all__ = ["each_sandbox"]

TRY = """
import ctypes, errno, socket, sys
call = ctypes.CDLL(None, use_errno=True)
pair = (ctypes.c_int * 2)()
def told(result):
    return "made" if result >= 0 else errno.errorcode[ctypes.get_errno()]
for family in range(0, 50):
    for kind in (1, 2, 3, 5):
        for protocol in (0, 1, 15, 16):
            print(family, kind, protocol, told(call.socket(family, kind, protocol)), "socket")
            print(family, kind, protocol, told(call.socketpair(family, kind, protocol, pair)), "pair")
for name, number in (("io_uring", 425), ("x32 socket", 0x40000000 + 41), ("keyctl", {keyctl})):
    print(-1, 0, 0, told(call.syscall(number, 1, 0, 0, 0, 0)), name)
"""
ALLOWED = {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6}
KEYCTL = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine, 250)


@pytest.mark.parametrize("network", [False, True], ids=["loopback", "network"])
async def test_other_socket_families_are_refused(
    each_sandbox: Sandbox, workspace: Path, home: Path, network: bool
) -> None:
    (workspace / "try.py").write_text(TRY.format(keyctl=KEYCTL))
    async with confined(workspace, home, sandbox=each_sandbox) as context:
        outcome = await bash(
            context, f"{sys.executable} try.py > out; echo done", Privileges(network=network)
        )
    assert outcome.text == "done"
    rows = [line.split(maxsplit=4) for line in (workspace / "out").read_text().splitlines()]
    made = {(int(family), int(protocol), call) for family, _, protocol, said, call in rows if said == "made"}
    for family, protocol, call in made:
        assert family in ALLOWED or (family, protocol) == (socket.AF_NETLINK, 0), (family, protocol, call)
    assert (socket.AF_UNIX, 0, "pair") in made
    if each_sandbox.has_mounts:
        assert {(socket.AF_UNIX, 0, "socket"), (socket.AF_INET, 0, "socket"), (16, 0, "socket")} <= made
    vsock = {said for family, _, _, said, call in rows if family == "40" and call == "socket"}
    assert len(rows) > 1000 and vsock <= {"EAFNOSUPPORT", "ENETUNREACH"}


I386 = 3
LOADED_AT = 0x08048000


def small_program() -> bytes:
    """A static 32-bit program: its exit code is the bits of what it could make.

    1: a vsock by `socket`, 2: by `socketcall`, 4: a vsock pair; 8: a unix socket by `socket`.
    """
    code = b"\x31\xf6"  # xor esi, esi
    for bit, family, number in ((1, 40, 359), (8, 1, 359), (4, 40, 360)):
        # mov eax, number; mov ebx, family; mov ecx, 1; xor edx, edx; int 0x80; if eax >= 0: or esi, bit
        code += b"\x56\xb8" + struct.pack("<I", number) + b"\xbb" + struct.pack("<I", family)
        code += b"\xb9\x01\x00\x00\x00\x31\xd2\xcd\x80\x5e\x85\xc0\x78\x03\x83\xce" + bytes((bit,))
    # push 0; push 1; push 40; mov ecx, esp; mov ebx, 1; mov eax, 102; int 0x80; if eax >= 0: or esi, 2
    code += b"\x6a\x00\x6a\x01\x6a\x28\x89\xe1\xbb\x01\x00\x00\x00\xb8\x66\x00\x00\x00\xcd\x80"
    code += b"\x85\xc0\x78\x03\x83\xce\x02"
    code += b"\x89\xf3\xb8\x01\x00\x00\x00\xcd\x80"  # exit(esi)
    head = 52 + 32
    elf = b"\x7fELF\x01\x01\x01" + bytes(9)
    elf += struct.pack("<HHIIIIIHHHHHH", 2, I386, 1, LOADED_AT + head, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    size = head + len(code)
    elf += struct.pack("<IIIIIIII", 1, 0, LOADED_AT, LOADED_AT, size, size, 7, 4096)
    return elf + code


@needs_sandbox
async def test_32_bit_programs_are_held_to_the_same(workspace: Path, home: Path) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the program is for x86")
    program = workspace / "small"
    program.write_bytes(small_program())
    program.chmod(0o755)
    try:
        outside = subprocess.run([program], check=False).returncode
    except OSError:
        pytest.skip("this kernel runs no 32-bit programs")
    if outside & 8 == 0:
        pytest.skip("32-bit programs cannot make sockets here")
    async with confined(workspace, home) as context:
        outcome = await bash(context, "./small; echo $?")
    assert outcome.text == "8", f"{outcome.text}, outside {outside}"
