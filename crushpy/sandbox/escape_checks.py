"""Tries the ways out of the sandbox, in a scene of its own, and says which of them it held."""

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

from crushpy.core.access import Privileges
from crushpy.core.ids import new_id
from crushpy.core.messages import Data
from crushpy.sandbox.confinement import Allowance, confine_in
from crushpy.sandbox.escapes import ESCAPED, ESCAPES
from crushpy.sandbox.filesystem_view import SandboxConfig
from crushpy.sandbox.finding import Sandbox
from crushpy.sandbox.supervisor.processes import HAS_PROC

_SECONDS = 30
_LEFT_BEHIND = ".crushpy-escaped"
_LEFT_IN_ETC = Path("/etc/crushpy-escaped")


class Trial(Data, frozen=True):
    name: str
    held: bool
    said: str = ""
    known: bool = False
    """It is documented that this sandbox does not hold it."""


class _Heard:
    """One command of the trial."""

    def __init__(self) -> None:
        self.exited = asyncio.Event()
        self.limit = ""

    def on_exit(self, status: int) -> None:
        self.exited.set()

    def on_refusal(self, error: int) -> None:
        self.exited.set()

    def on_limit(self, what: str, most: int) -> None:
        self.limit = what

    def on_end(self, survivors: list[int]) -> None: ...

    def on_over(self) -> None: ...

    def on_loss(self, trouble: str) -> None:
        self.limit = self.limit or trouble
        self.exited.set()


class EscapeTrial:
    """A workspace with a repository, a secret, servers to reach; and commands that try."""

    def __init__(self, sandbox: Sandbox, folder: Path, home: Path) -> None:
        """`folder`: a private one of crushpy's, which commands must not see; it is removed at the end."""
        self._folder = folder / new_id()
        self._home = home
        self._stack = ExitStack()
        self.workspace = self._folder / "workspace"
        (self.workspace / ".git" / "hooks").mkdir(parents=True)
        (self.workspace / ".git" / "config").write_text("[core]\n")
        secret = self._folder / "secret"
        secret.write_text("a secret of crushpy's\n")
        self._values = {
            "home": str(home),
            "secret": str(secret),
            "pid": os.getpid(),
            "abstract": f"crushpy-{new_id()}",
            "socket": str(home / f".crushpy-{new_id()}"),
        }
        self._values["port"] = self._listen()
        grounds = SandboxConfig(
            self.workspace, home, (folder,), self._folder / "outputs", self._folder / "aside"
        )
        self._sandbox = sandbox
        self._confinement = confine_in(
            sandbox, grounds, self._folder / "private", Allowance(200, 2_000, 1_000)
        )

    def _listen(self) -> int:
        near = self._stack.enter_context(socket.socket())
        near.bind(("127.0.0.1", 0))
        near.listen()
        abstract = (f"\0{self._values['abstract']}",) if sys.platform.startswith("linux") else ()
        for address in (*abstract, str(self._values["socket"])):
            one = self._stack.enter_context(socket.socket(socket.AF_UNIX))
            one.bind(address)
            one.listen()
        return near.getsockname()[1]

    async def run(self) -> AsyncIterator[Trial]:
        for escape in ESCAPES:
            output, _ = await self._python(escape.script.format(**self._values))
            escaped = ESCAPED in output and not escape.leaves
            left = [place for place in (self._home / _LEFT_BEHIND, _LEFT_IN_ETC) if place.exists()]
            last = output.strip().splitlines()[-1] if output else ""
            known = escape.in_repository and self._sandbox.name == "landlock"
            yield Trial(escape.name, not escaped and not left, last, known)
        yield await self._planting()
        yield await self._bomb()
        yield await self._staying()

    async def _planting(self) -> Trial:
        self._confinement.begin()
        await self._python("open('.envrc', 'w').write('x')")
        said = self._confinement.check(Privileges())
        return Trial("plant an .envrc", not (self.workspace / ".envrc").exists(), "; ".join(said))

    async def _bomb(self) -> Trial:
        if self._sandbox.name != "bubblewrap":
            # Nothing but a pid namespace ends them all in one step: trying it could take the machine with it.
            return Trial("start processes without end", False, "not tried: they are only counted", known=True)
        bomb = (
            "import os\nwhile True:\n    try:\n        os.fork()\n"
            "    except OSError as error:\n        print(error, flush=True)\n        os._exit(0)"
        )
        output, limit = await self._python(bomb)
        held = "" if limit else output.strip().partition("\n")[0]
        return Trial("start processes without end", bool(limit or held), held or f"killed: {limit}")

    async def _staying(self) -> Trial:
        mark = f"86400.{os.getpid()}"
        await self._python(
            "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
            f"        os.execve('/bin/sleep', ['sleep', '{mark}'], {{}})\n    os._exit(0)"
        )
        await self._confinement.close(1)
        if not HAS_PROC:
            return Trial("survive the end", False, "not tried: processes cannot be listed here", known=True)
        left = [name for name in os.listdir("/proc") if name.isdigit() and mark in _arguments(name)]  # noqa: PTH208
        return Trial("survive the end", not left, " ".join(left))

    async def _python(self, script: str) -> tuple[str, str]:
        """What a script prints, and which limit ended it."""
        keeper = self._confinement.keeper(Privileges())
        heard = _Heard()
        reading, writing = os.pipe()
        try:
            name = keeper.run(
                [sys.executable, "-I", "-c", script],
                str(self.workspace),
                {"PATH": os.environ["PATH"]},
                writing,
                heard,
            )
        finally:
            os.close(writing)
        try:
            async with asyncio.timeout(_SECONDS):
                await heard.exited.wait()
        except TimeoutError:
            pass
        keeper.kill(name)
        os.set_blocking(reading, False)
        try:
            return os.read(reading, 10_000).decode(errors="replace"), heard.limit
        except BlockingIOError:
            return "", heard.limit
        finally:
            os.close(reading)

    async def close(self) -> None:
        await self._confinement.close(0)
        self._stack.close()
        Path(str(self._values["socket"])).unlink(missing_ok=True)
        (self._home / _LEFT_BEHIND).unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def _arguments(pid: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []
