"""Tries known ways out of the sandbox for `crushpy doctor --sandbox`, and reports which it held."""

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
from crushpy.sandbox.confinement import ResourceLimits, confine_in
from crushpy.sandbox.filesystem_view import SandboxConfig
from crushpy.sandbox.finding import Sandbox
from crushpy.sandbox.hidden_paths import secrets
from crushpy.sandbox.supervisor.process_control import HAS_PROC

ESCAPED = "ESCAPED"


class Escape(Data, frozen=True):
    """One way out. `script` is Python with placeholders in braces."""

    kind: str
    """The protection that it tests."""
    name: str
    script: str
    leaves: bool = False
    """It escaped only if what it wrote is found outside: a private /tmp may be written."""
    in_repository: bool = False
    """It changes `.git`, and escaped only if that is not restored after the command."""


def _script(action: str) -> str:
    """A script that prints ESCAPED if `action` raises nothing."""
    lines = "\n".join(f"    {line}" for line in action.strip().splitlines())
    return f"try:\n{lines}\n    print('{ESCAPED}')\nexcept OSError as error:\n    print(error)"


_CONNECT = (
    "import socket\ns = socket.socket(socket.{family}, socket.{kind})\n"
    "s.settimeout(3)\ns.connect({address})\n"
)

ESCAPES = (
    Escape("secrets", "read what crushpy keeps", _script("open({secret!r}).read()")),
    Escape(
        "secrets",
        "read keys in ~/.ssh",
        _script("import os\nif not os.listdir(os.path.join({home!r}, '.ssh')): raise OSError('empty')"),
    ),
    Escape(
        "secrets",
        "read credentials, wallets and histories of this machine",
        "import os\nfor place in {secrets!r}:\n    try:\n"
        "        found = os.listdir(place) if os.path.isdir(place) else open(place, 'rb').read(1)\n"
        "        print('ESCAPED' if found else 'empty', place)\n"
        "    except OSError as error:\n        print(error)",
    ),
    Escape(
        "secrets",
        "read variables in an .env file",
        _script("if not open({variables!r}).read(): raise OSError('empty')"),
    ),
    Escape("own code", "change crushpy's own code", _script("open({module!r}, 'r+')")),
    Escape(
        "own code",
        "add a module to crushpy",
        _script("import os\nopen({module!r} + '-escaped', 'x')\nos.unlink({module!r} + '-escaped')"),
    ),
    Escape(
        "own code",
        "replace the interpreter's environment",
        _script(
            "import os\nmoved = {prefix!r} + '-escaped'\nos.rename({prefix!r}, moved)\n"
            "os.rename(moved, {prefix!r})"
        ),
    ),
    Escape(
        "caches",
        "leave a program in a cache that gets executed",
        _script("open({home!r} + '/.cache/uv/crushpy-escaped', 'w').write('x')"),
        leaves=True,
    ),
    Escape(
        "caches",
        "leave a hook for pre-commit",
        _script("open({home!r} + '/.cache/pre-commit/crushpy-escaped', 'w')"),
        leaves=True,
    ),
    Escape(
        "writes outside",
        "write in the home folder",
        _script("open({home!r} + '/.crushpy-escaped', 'w').write('x')"),
        True,
    ),
    Escape("writes outside", "write in /etc", _script("open('/etc/crushpy-escaped', 'w').write('x')")),
    Escape(
        "writes outside",
        "write through /proc/self/root",
        _script("open('/proc/self/root/etc/crushpy-escaped', 'w')"),
    ),
    Escape(
        "writes outside",
        "write through a link in the workspace",
        _script("import os\nos.symlink({home!r}, 'link')\nopen('link/.crushpy-escaped', 'w').write('x')"),
        leaves=True,
    ),
    Escape(
        "writes outside",
        "change the machine's settings",
        _script("open('/proc/sys/kernel/core_pattern', 'r+')"),
    ),
    Escape("writes outside", "press the system's magic key", _script("open('/proc/sysrq-trigger', 'w')")),
    Escape(
        "git", "plant a hook", _script("open('.git/hooks/pre-commit', 'w').write('x')"), in_repository=True
    ),
    Escape(
        "git",
        "change .git through a hard link",
        _script("import os\nos.link('.git/config', 'linked')\nopen('linked', 'a').write('x')"),
        in_repository=True,
    ),
    Escape("git", "rename .git away", _script("import os\nos.rename('.git', 'git')"), in_repository=True),
    Escape(
        "writes outside",
        "make the root writable",
        "import subprocess\nasked = 'mount -o remount,rw,bind / && touch /etc/crushpy-escaped && echo "
        + ESCAPED
        + "'\nfor how in (['sh', '-c'], ['unshare', '-Urm', 'sh', '-c']):\n"
        "    subprocess.run([*how, asked], stderr=1)",
    ),
    Escape(
        "network",
        "reach a server of this machine",
        _script(_CONNECT.format(family="AF_INET", kind="SOCK_STREAM", address="('127.0.0.1', {port})")),
    ),
    Escape(
        "network",
        "reach the internet",
        _script(_CONNECT.format(family="AF_INET", kind="SOCK_DGRAM", address="('192.0.2.1', 53)")),
    ),
    Escape(
        "socket families",
        "reach the host of this virtual machine",
        _script("import socket\nsocket.socket(40, 1, 0)"),
    ),
    Escape("socket families", "read all packets", _script("import socket\nsocket.socket(17, 3, 0)")),
    Escape("socket families", "reach the kernel's audit", _script("import socket\nsocket.socket(16, 3, 9)")),
    Escape(
        "socket families",
        "create sockets through io_uring",
        "import ctypes\nmemory = ctypes.create_string_buffer(512)\n"
        "print('ESCAPED' if ctypes.CDLL(None).syscall(425, 4, memory) >= 0 else 'refused')",
    ),
    Escape(
        "unix sockets",
        "reach an abstract socket",
        _script(_CONNECT.format(family="AF_UNIX", kind="SOCK_STREAM", address="'\\0' + {abstract!r}")),
    ),
    Escape(
        "unix sockets",
        "reach a socket in the file system",
        _script(_CONNECT.format(family="AF_UNIX", kind="SOCK_STREAM", address="{socket!r}")),
    ),
    Escape(
        "signals",
        "see or signal crushpy",
        _script(
            "import os\nos.kill({pid}, 0)\nif b'crushpy' not in open('/proc/{pid}/cmdline', 'rb').read():\n"
            "    raise OSError('another one')"
        ),
    ),
    Escape(
        "ptrace",
        "read the environment of who runs it",
        _script("if not open('/proc/1/environ').read(): raise OSError('empty')"),
    ),
    Escape(
        "ptrace",
        "trace who runs it",
        "import ctypes\nprint('"
        + ESCAPED
        + "' if ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0 else 'refused')",
    ),
    Escape(
        "terminal",
        "type into the terminal",
        _script(
            "import fcntl, termios\nfcntl.ioctl(open('/dev/tty'), getattr(termios, 'TIOCSTI', 0x5412), b'x')"
        ),
    ),
)


_ESCAPE_TIMEOUT_S = 30


class Trial(Data, frozen=True):
    kind: str
    name: str
    held: bool
    said: str = ""
    known: bool = False
    """It is documented that this sandbox does not prevent it."""


class EscapeScene:
    """A workspace with a repository, secrets and servers that commands try to reach."""

    def __init__(self, folder: Path, home: Path) -> None:
        """`folder`: a new one that commands must not see; it is removed at the end."""
        self.folder = folder
        self.workspace = folder / "workspace"
        self._git = self.workspace / ".git"
        (self._git / "hooks").mkdir(parents=True)
        (self._git / "config").write_text("[core]\n")
        self._stack = ExitStack()
        own = home / f".crushpy-{new_id()}"
        escaped = (".crushpy-escaped", ".cache/uv/crushpy-escaped", ".cache/pre-commit/crushpy-escaped")
        self._traces = [Path("/etc/crushpy-escaped"), *(home / name for name in escaped)]
        self.values: dict[str, object] = {
            "home": str(home),
            "secret": str(folder / "secret"),
            "secrets": list(secrets(home)),
            "variables": f"{home}/.env.{own.name}",
            "module": str(Path(__file__).with_name("__init__.py")),
            "prefix": sys.prefix,
            "pid": os.getpid(),
            "abstract": f"crushpy-{new_id()}",
            "socket": str(own / "socket"),
        }
        own.mkdir()
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        self._stack.callback(shutil.rmtree, own, ignore_errors=True)
        (folder / "secret").write_text("a secret of crushpy's\n")
        variables = Path(str(self.values["variables"]))
        self._stack.callback(variables.unlink, missing_ok=True)
        variables.write_text("KEY=a secret\n")
        self.values["port"] = self._listen()

    def _listen(self) -> int:
        listener = self._stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        abstract = (f"\0{self.values['abstract']}",) if sys.platform.startswith("linux") else ()
        for address in (*abstract, str(self.values["socket"])):
            unix_listener = self._stack.enter_context(socket.socket(socket.AF_UNIX))
            unix_listener.bind(address)
            unix_listener.listen()
        return listener.getsockname()[1]

    def repository(self) -> dict[str, str]:
        """What git would act on."""
        found = (path for path in self._git.rglob("*") if path.is_file())
        return {str(path.relative_to(self._git)): path.read_text(errors="replace") for path in found}

    def is_held(self, escape: Escape, output: str, before: dict[str, str]) -> bool:
        """Whether an attempt failed; `before`: the repository before it."""
        traces = [place for place in self._traces if place.exists()]
        for place in traces:
            place.unlink()
        escaped = self.repository() != before if escape.in_repository else ESCAPED in output
        return not traces and (escape.leaves or not escaped)

    def close(self) -> None:
        self._stack.close()


class _Listener:
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
    """Commands in a sandbox of ours that try to escape."""

    def __init__(self, sandbox: Sandbox, folder: Path, home: Path) -> None:
        """`folder`: a private folder that commands must not see."""
        self._scene = scene = EscapeScene(folder / new_id(), home)
        self.workspace = scene.workspace
        places = (scene.folder / "outputs", scene.folder / "aside")
        # Even a folder that the user named does not open crushpy's own code.
        environment = Path(sys.prefix)
        above = (str(environment.parent),) if (environment / "pyvenv.cfg").exists() else ()
        named = (str(Path(__file__).parents[2]), *above)
        config = SandboxConfig(self.workspace, home, (folder,), *places, write=named)
        self._sandbox = sandbox
        limits = ResourceLimits(200, 2_000, 1_000)
        self._confinement = confine_in(sandbox, config, scene.folder / "private", limits)

    async def run(self) -> AsyncIterator[Trial]:
        ready, trouble = await self._run_python("print('ready')")
        if "ready" not in ready:  # otherwise every attempt would seem to be held
            yield Trial("commands", "run a command at all", False, trouble or ready)
            return
        for escape in ESCAPES:
            before = self._scene.repository()
            self._confinement.begin(Privileges())
            output, _ = await self._run_python(escape.script.format(**self._scene.values))
            said = self._confinement.check(Privileges())
            held = self._scene.is_held(escape, output, before)
            last = output.strip().splitlines()[-1] if output else ""
            known = escape.in_repository and self._sandbox.name == "landlock"
            yield Trial(escape.kind, escape.name, held, "; ".join((last, *said)), known)
        yield await self._try_protected_file()
        yield await self._try_fork_bomb()
        yield await self._try_survivor()

    async def _try_protected_file(self) -> Trial:
        self._confinement.begin(Privileges())
        await self._run_python("open('.envrc', 'w').write('x')")
        said = self._confinement.check(Privileges())
        return Trial(
            "executed files", "plant an .envrc", not (self.workspace / ".envrc").exists(), "; ".join(said)
        )

    async def _try_fork_bomb(self) -> Trial:
        if self._sandbox.name != "bubblewrap":
            # Only a pid namespace ends them all at once: without it, trying could take down the machine.
            return Trial(
                "processes",
                "start processes without end",
                False,
                "not tried: they are only counted",
                known=True,
            )
        bomb = (
            "import os\nwhile True:\n    try:\n        os.fork()\n"
            "    except OSError as error:\n        print(error, flush=True)\n        os._exit(0)"
        )
        output, limit = await self._run_python(bomb)
        held = "" if limit else output.strip().partition("\n")[0]
        return Trial(
            "processes", "start processes without end", bool(limit or held), held or f"killed: {limit}"
        )

    async def _try_survivor(self) -> Trial:
        mark = f"86400.{os.getpid()}"
        await self._run_python(
            "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
            f"        os.execve('/bin/sleep', ['sleep', '{mark}'], {{}})\n    os._exit(0)"
        )
        await self._confinement.close(1)
        if not HAS_PROC:
            return Trial(
                "processes",
                "survive the end",
                False,
                "not tried: processes cannot be listed here",
                known=True,
            )
        remaining = [name for name in os.listdir("/proc") if name.isdigit() and mark in _command_line(name)]  # noqa: PTH208
        return Trial("processes", "survive the end", not remaining, " ".join(remaining))

    async def _run_python(self, script: str) -> tuple[str, str]:
        """The output of a script, and the limit that ended it."""
        supervisor = self._confinement.supervisor(Privileges())
        listener = _Listener()
        reading, writing = os.pipe()
        try:
            name = supervisor.run(
                [sys.executable, "-I", "-c", script],
                str(self.workspace),
                {"PATH": os.environ["PATH"]},
                writing,
                listener,
            )
        finally:
            os.close(writing)
        try:
            async with asyncio.timeout(_ESCAPE_TIMEOUT_S):
                await listener.exited.wait()
        except TimeoutError:
            pass
        supervisor.kill(name)
        os.set_blocking(reading, False)
        try:
            return os.read(reading, 10_000).decode(errors="replace"), listener.limit
        except BlockingIOError:
            return "", listener.limit
        finally:
            os.close(reading)

    async def close(self) -> None:
        await self._confinement.close(0)
        self._scene.close()


def _command_line(pid: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []
