"""Sockets of the host stay out of reach: X11, D-Bus, docker and the agent of ssh."""

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confined import bash, confined, needs_sandbox

from crushpy.core.access import Privileges

pytestmark = [pytest.mark.slow, needs_sandbox]
ABSTRACT = {"X11": f"\0/tmp/.X11-unix/X{os.getpid()}", "D-Bus": f"\0/tmp/dbus-{os.getpid()}"}
CONNECT = (
    "import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(5); "
    "s.connect(sys.argv[1].replace(chr(64), chr(0))); print(6 * 7 * 1000003)"
)


@pytest.fixture
def listeners(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A listener at each of the usual places that may be written here, and where it is."""
    runtime = Path("/run") if os.access("/run", os.W_OK) else Path(os.environ.get("XDG_RUNTIME_DIR", "/tmp"))
    with ExitStack() as stack:
        run = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=runtime)))
        tmp = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        places = {
            "X11 socket": str(tmp / "X0"),
            "D-Bus socket": str(run / "bus"),
            "docker": str(run / "docker.sock"),
            "ssh-agent": str(tmp / "agent.1"),
            **ABSTRACT,
        }
        for place in places.values():
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(place)
            listener.listen()
        monkeypatch.setenv("SSH_AUTH_SOCK", places["ssh-agent"])
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={places['D-Bus socket']}")
        monkeypatch.setenv("DOCKER_HOST", f"unix://{places['docker']}")
        yield places


async def test_host_sockets_are_unreachable(
    listeners: dict[str, str], workspace: Path, tmp_path: Path
) -> None:
    for place in listeners.values():  # were they dead, the rest would prove nothing
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(place)
    async with confined(workspace, tmp_path / "crushpy") as context:
        for needs in (Privileges(), Privileges(hosts=("a.example",)), Privileges(git=True)):
            words = (place.replace("\0", "@") for place in listeners.values())
            tries = "; ".join(f'{sys.executable} -c "$TRY" {word}' for word in words)
            outcome = await bash(context, f"export TRY='{CONNECT}'; {tries}", needs)
            assert "42000126" not in outcome.text
            assert outcome.text.count("Error: [Errno") == len(listeners), outcome.text
        told = await bash(context, "env")
        assert not any(place in told.text for place in listeners.values() if "\0" not in place)
