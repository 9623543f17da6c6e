"""Tries known ways out of the sandbox for `crushpy doctor --sandbox`, and reports which it held."""

import os
import shlex
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path

from crushpy.core.access import Privileges
from crushpy.core.ids import new_id
from crushpy.core.messages import Data
from crushpy.sandbox.confinement import ResourceLimits, confine_in
from crushpy.sandbox.filesystem_view import SandboxConfig
from crushpy.sandbox.finding import Sandbox
from crushpy.sandbox.hidden_paths import secrets
from crushpy.sandbox.supervisor.process_control import HAS_PROC
from crushpy.tools.shell.command_output import Output
from crushpy.tools.shell.jobs import Jobs
from crushpy.util.data_table import read_table

ESCAPED = "ESCAPED"


def attempt_script(action: str) -> str:
    lines = "\n".join(f"    {line}" for line in action.splitlines())
    return f"try:\n{lines}\n    print('{ESCAPED}')\nexcept OSError as error:\n    print(error)"


ESCAPES = read_table(__file__, "escapes", dict[str, dict[str, str]])
"""What each attempt does, by kind and name."""
_ESCAPE_TIMEOUT_S = 30


class Trial(Data, frozen=True):
    kind: str
    name: str
    held: bool
    said: str = ""
    known: bool = False
    """It is documented that this sandbox does not prevent it."""


class EscapeTrial:
    """Commands in a sandbox of ours that try to escape: from a workspace with a repository, to secrets and
    servers."""

    def __init__(self, sandbox: Sandbox, folder: Path, home: Path) -> None:
        """`folder`: a private folder that commands must not see."""
        self._sandbox, self._stack = sandbox, ExitStack()
        scene, own = folder / new_id(), home / f".crushpy-{new_id()}"
        self.workspace, self._socket = scene / "workspace", own / "socket"
        self._git = self.workspace / ".git"
        variables = home / f".env.{own.name}"
        texts = {
            self._git / "config": "[core]\n",
            self._git / "HEAD": "ref: refs/heads/main\n",
            self._git / "hooks" / "post-commit": "",
            scene / "secret": "a secret of crushpy's\n",
            variables: "KEY=a secret\n",
        }
        self._stack.callback(shutil.rmtree, scene, ignore_errors=True)
        self._stack.callback(shutil.rmtree, own, ignore_errors=True)
        self._stack.callback(variables.unlink, missing_ok=True)
        for place in (own, self._git / "hooks", self._git / "objects", self._git / "refs"):
            place.mkdir(parents=True)
        for file, text in texts.items():
            file.write_text(text)
        escaped = (".crushpy-escaped", ".cache/uv/crushpy-escaped", ".cache/pre-commit/crushpy-escaped")
        self._traces = [Path("/etc/crushpy-escaped"), *(home / name for name in escaped)]
        abstract = f"crushpy-{new_id()}"
        named = (f"\0{abstract}",) if sys.platform.startswith("linux") else ()
        listeners = [self._listen(address) for address in (("127.0.0.1", 0), *named, str(self._socket))]
        self.values: dict[str, object] = {
            "home": str(home),
            "secret": str(scene / "secret"),
            "secrets": list(secrets(home)),
            "variables": str(variables),
            "module": str(Path(__file__).with_name("__init__.py")),
            "prefix": sys.prefix,
            "pid": os.getpid(),
            "abstract": abstract,
            "socket": str(self._socket),
            "port": listeners[0].getsockname()[1],
        }
        # Even a folder that the user named does not open crushpy's own code.
        environment = Path(sys.prefix)
        above = (str(environment.parent),) if (environment / "pyvenv.cfg").exists() else ()
        named = (str(Path(__file__).parents[3]), *above)
        write = tuple(each for each in named if not home.is_relative_to(each))  # those cannot be named
        config = SandboxConfig(
            self.workspace, home, (folder,), scene / "outputs", scene / "aside", write=write
        )
        limits = ResourceLimits(200, 2_000, 1_000)
        self._jobs = Jobs(confine=lambda: confine_in(sandbox, config, scene / "private", limits))

    def _listen(self, address: str | tuple[str, int]) -> socket.socket:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        listener = self._stack.enter_context(socket.socket(family))
        listener.bind(address)
        listener.listen()
        return listener

    def repository(self) -> dict[str, str]:
        """What git would act on."""
        found = (path for path in self._git.rglob("*") if path.is_file())
        return {str(path.relative_to(self._git)): path.read_text(errors="replace") for path in found}

    def is_held(self, kind: str, script: str, output: str, before: dict[str, str]) -> bool:
        """Whether an attempt failed; `before`: the repository before it."""
        traces = [place for place in self._traces if place.exists()]
        for place in traces:
            place.unlink()
        if kind not in ("git", "executed files"):
            return not traces and (ESCAPED not in output or "crushpy-escaped" in script)
        # It escaped only if the command left something in the workspace that other programs execute.
        texts = (path.read_text(errors="replace") for path in self.workspace.rglob("*") if path.is_file())
        left = [text for text in texts if "crushpy-escaped" in text]
        return not left and before.items() <= self.repository().items()

    async def run(self) -> AsyncIterator[Trial]:
        ready, trouble = await self._run_python("print('ready')")
        if "ready" not in ready:  # otherwise every attempt would seem to be held
            yield Trial("commands", "run a command at all", False, trouble or ready)
            return
        attempts = ((kind, name, each[name]) for kind, each in ESCAPES.items() for name in each)
        for kind, name, action in attempts:
            before, script = self.repository(), attempt_script(action)
            output, _ = await self._run_python(script.format(**self.values))
            said = self._jobs.take_messages(Privileges())
            held = self.is_held(kind, script, output, before)
            last = output.strip().splitlines()[-1] if output else ""
            shown = (*said, *((last,) if not held or last != ESCAPED else ()))
            yield Trial(kind, name, held, "; ".join(shown))
        yield await self._try_hostile_repository()
        yield await self._try_fork_bomb()
        yield await self._try_survivor()

    async def _try_hostile_repository(self) -> Trial:
        """Writes where a `.git` that came with a project leads, with access to the repository granted."""
        target = self._socket.parent
        for name in ("objects", "refs"):
            (target / name).mkdir()
        (target / "HEAD").write_text("ref: refs/heads/main\n")
        shutil.rmtree(self._git)
        self._git.write_text(f"gitdir: {target}\n")
        output, _ = await self._run_python(
            f"open({str(target / 'HEAD')!r}, 'a').write('x')", Privileges(git=True)
        )
        held = (target / "HEAD").read_text() == "ref: refs/heads/main\n"
        return Trial("git", "write where a hostile .git leads", held, output.strip()[-200:])

    async def _try_fork_bomb(self) -> Trial:
        name = "start processes without end"
        if self._sandbox.name != "bubblewrap":
            # Only a pid namespace ends them all at once: without it, trying could take down the machine.
            return Trial("processes", name, False, "not tried: they are only counted", known=True)
        # More than are allowed, and not more than a busy machine can bear until they are counted.
        bomb = (
            "import os, time\ntry:\n    for _ in range(10):\n        os.fork()\n    time.sleep(60)\n"
            "except OSError as error:\n    print(error, flush=True)\n    os._exit(0)"
        )
        output, limit = await self._run_python(bomb)
        held = "" if limit else output.strip().partition("\n")[0]
        return Trial("processes", name, bool(limit or held), held or f"killed: {limit}")

    async def _try_survivor(self) -> Trial:
        mark = f"86400.{os.getpid()}"
        await self._run_python(
            "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
            f"        os.execve('/bin/sleep', ['sleep', '{mark}'], {{}})\n    os._exit(0)"
        )
        await self._jobs.close()
        if not HAS_PROC:
            said = "not tried: processes cannot be listed here"
            return Trial("processes", "survive the end", False, said, known=True)
        remaining: list[str] = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = file.read_text(errors="replace").split("\0")
                remaining += [file.parent.name] if mark in words else []
        return Trial("processes", "survive the end", not remaining, " ".join(remaining))

    async def _run_python(self, script: str, needs: Privileges = Privileges()) -> tuple[str, str]:  # noqa: B008
        """The output of a script, and the limit that ended it."""
        command, output = shlex.join([sys.executable, "-I", "-c", script]), Output(None)
        process = self._jobs.run(command, self.workspace, output, needs)
        await process.finish_or_kill(_ESCAPE_TIMEOUT_S)
        await process.kill()
        return output.take().text, process.trouble

    async def close(self) -> None:
        await self._jobs.close()
        self._stack.close()
