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
from crushpy.sandbox.supervisor.process_control import HAS_PROC

ESCAPED = "ESCAPED"


class Escape(Data, frozen=True):
    """One way out. `script` is Python with placeholders in braces."""

    name: str
    script: str
    leaves: bool = False
    """It escaped only if what it wrote is found outside: a private /tmp may be written."""
    in_repository: bool = False
    """It changes `.git`, which not every sandbox can protect inside a writable workspace."""


def _script(action: str) -> str:
    """A script that prints ESCAPED if `action` raises nothing."""
    lines = "\n".join(f"    {line}" for line in action.strip().splitlines())
    return f"try:\n{lines}\n    print('{ESCAPED}')\nexcept OSError as error:\n    print(error)"


_CONNECT = (
    "import socket\ns = socket.socket(socket.{family}, socket.{kind})\n"
    "s.settimeout(3)\ns.connect({address})\n"
)

ESCAPES = (
    Escape("read what crushpy keeps", _script("open({secret!r}).read()")),
    Escape(
        "read keys in ~/.ssh",
        _script("import os\nif not os.listdir(os.path.join({home!r}, '.ssh')): raise OSError('empty')"),
    ),
    Escape("write in the home folder", _script("open({home!r} + '/.crushpy-escaped', 'w').write('x')"), True),
    Escape("write in /etc", _script("open('/etc/crushpy-escaped', 'w').write('x')")),
    Escape("write through /proc/self/root", _script("open('/proc/self/root/etc/crushpy-escaped', 'w')")),
    Escape(
        "write through a link in the workspace",
        _script("import os\nos.symlink({home!r}, 'link')\nopen('link/.crushpy-escaped', 'w').write('x')"),
        leaves=True,
    ),
    Escape("change the machine's settings", _script("open('/proc/sys/kernel/core_pattern', 'r+')")),
    Escape("press the system's magic key", _script("open('/proc/sysrq-trigger', 'w')")),
    Escape("plant a hook", _script("open('.git/hooks/pre-commit', 'w').write('x')"), in_repository=True),
    Escape(
        "change .git through a hard link",
        _script("import os\nos.link('.git/config', 'linked')"),
        in_repository=True,
    ),
    Escape("rename .git away", _script("import os\nos.rename('.git', 'git')"), in_repository=True),
    Escape(
        "make the root writable",
        "import subprocess\nasked = 'mount -o remount,rw,bind / && touch /etc/crushpy-escaped && echo "
        + ESCAPED
        + "'\nfor how in (['sh', '-c'], ['unshare', '-Urm', 'sh', '-c']):\n"
        "    subprocess.run([*how, asked], stderr=1)",
    ),
    Escape(
        "reach a server of this machine",
        _script(_CONNECT.format(family="AF_INET", kind="SOCK_STREAM", address="('127.0.0.1', {port})")),
    ),
    Escape(
        "reach the internet",
        _script(_CONNECT.format(family="AF_INET", kind="SOCK_DGRAM", address="('192.0.2.1', 53)")),
    ),
    Escape(
        "reach an abstract socket",
        _script(_CONNECT.format(family="AF_UNIX", kind="SOCK_STREAM", address="'\\0' + {abstract!r}")),
    ),
    Escape(
        "reach a socket in the file system",
        _script(_CONNECT.format(family="AF_UNIX", kind="SOCK_STREAM", address="{socket!r}")),
    ),
    Escape(
        "see or signal crushpy",
        _script(
            "import os\nos.kill({pid}, 0)\nif b'crushpy' not in open('/proc/{pid}/cmdline', 'rb').read():\n"
            "    raise OSError('another one')"
        ),
    ),
    Escape(
        "read the environment of who runs it",
        _script("if not open('/proc/1/environ').read(): raise OSError('empty')"),
    ),
    Escape(
        "trace who runs it",
        "import ctypes\nprint('"
        + ESCAPED
        + "' if ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0 else 'refused')",
    ),
    Escape(
        "type into the terminal",
        _script(
            "import fcntl, termios\nfcntl.ioctl(open('/dev/tty'), getattr(termios, 'TIOCSTI', 0x5412), b'x')"
        ),
    ),
)


_ESCAPE_TIMEOUT_S = 30
_ESCAPED_FILE = ".crushpy-escaped"
_ESCAPED_ETC_FILE = Path("/etc/crushpy-escaped")


class Trial(Data, frozen=True):
    name: str
    held: bool
    said: str = ""
    known: bool = False
    """It is documented that this sandbox does not prevent it."""


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
    """A workspace with a repository, a secret and servers, and commands that try to reach them."""

    def __init__(self, sandbox: Sandbox, folder: Path, home: Path) -> None:
        """`folder`: a private folder that commands must not see; it is removed at the end."""
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
        config = SandboxConfig(
            self.workspace, home, (folder,), self._folder / "outputs", self._folder / "aside"
        )
        self._sandbox = sandbox
        self._confinement = confine_in(
            sandbox, config, self._folder / "private", ResourceLimits(200, 2_000, 1_000)
        )

    def _listen(self) -> int:
        listener = self._stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        abstract = (f"\0{self._values['abstract']}",) if sys.platform.startswith("linux") else ()
        for address in (*abstract, str(self._values["socket"])):
            unix_listener = self._stack.enter_context(socket.socket(socket.AF_UNIX))
            unix_listener.bind(address)
            unix_listener.listen()
        return listener.getsockname()[1]

    async def run(self) -> AsyncIterator[Trial]:
        for escape in ESCAPES:
            output, _ = await self._run_python(escape.script.format(**self._values))
            escaped = ESCAPED in output and not escape.leaves
            remaining = [place for place in (self._home / _ESCAPED_FILE, _ESCAPED_ETC_FILE) if place.exists()]
            last = output.strip().splitlines()[-1] if output else ""
            known = escape.in_repository and self._sandbox.name == "landlock"
            yield Trial(escape.name, not escaped and not remaining, last, known)
        yield await self._try_protected_file()
        yield await self._try_fork_bomb()
        yield await self._try_survivor()

    async def _try_protected_file(self) -> Trial:
        self._confinement.begin(Privileges())
        await self._run_python("open('.envrc', 'w').write('x')")
        said = self._confinement.check(Privileges())
        return Trial("plant an .envrc", not (self.workspace / ".envrc").exists(), "; ".join(said))

    async def _try_fork_bomb(self) -> Trial:
        if self._sandbox.name != "bubblewrap":
            # Only a pid namespace ends them all at once: without it, trying could take down the machine.
            return Trial("start processes without end", False, "not tried: they are only counted", known=True)
        bomb = (
            "import os\nwhile True:\n    try:\n        os.fork()\n"
            "    except OSError as error:\n        print(error, flush=True)\n        os._exit(0)"
        )
        output, limit = await self._run_python(bomb)
        held = "" if limit else output.strip().partition("\n")[0]
        return Trial("start processes without end", bool(limit or held), held or f"killed: {limit}")

    async def _try_survivor(self) -> Trial:
        mark = f"86400.{os.getpid()}"
        await self._run_python(
            "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
            f"        os.execve('/bin/sleep', ['sleep', '{mark}'], {{}})\n    os._exit(0)"
        )
        await self._confinement.close(1)
        if not HAS_PROC:
            return Trial("survive the end", False, "not tried: processes cannot be listed here", known=True)
        remaining = [name for name in os.listdir("/proc") if name.isdigit() and mark in _command_line(name)]  # noqa: PTH208
        return Trial("survive the end", not remaining, " ".join(remaining))

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
        self._stack.close()
        Path(str(self._values["socket"])).unlink(missing_ok=True)
        (self._home / _ESCAPED_FILE).unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def _command_line(pid: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []
