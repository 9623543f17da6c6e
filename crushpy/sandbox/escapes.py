"""Ways out of the sandbox that `crushpy doctor --sandbox` tries. Each prints ESCAPED where it leads out."""

from crushpy.core.messages import Data

ESCAPED = "ESCAPED"


class Escape(Data, frozen=True):
    """One way out. `script` is Python; what stands in braces is filled in."""

    name: str
    script: str
    leaves: bool = False
    """It leads out only where what it wrote is found outside: a /tmp of one's own may be written."""
    in_repository: bool = False
    """It changes `.git`, which not every sandbox can keep from a command that may write the workspace."""


def _try(action: str) -> str:
    """A script that says ESCAPED where `action` raises nothing."""
    lines = "\n".join(f"    {line}" for line in action.strip().splitlines())
    return f"try:\n{lines}\n    print('{ESCAPED}')\nexcept OSError as error:\n    print(error)"


_CONNECT = (
    "import socket\ns = socket.socket(socket.{family}, socket.{kind})\n"
    "s.settimeout(3)\ns.connect({address})\n"
)

ESCAPES = (
    Escape("read what crushpy keeps", _try("open({secret!r}).read()")),
    Escape(
        "read keys in ~/.ssh",
        _try("import os\nif not os.listdir(os.path.join({home!r}, '.ssh')): raise OSError('empty')"),
    ),
    Escape("write in the home folder", _try("open({home!r} + '/.crushpy-escaped', 'w').write('x')"), True),
    Escape("write in /etc", _try("open('/etc/crushpy-escaped', 'w').write('x')")),
    Escape("write through /proc/self/root", _try("open('/proc/self/root/etc/crushpy-escaped', 'w')")),
    Escape(
        "write through a link in the workspace",
        _try("import os\nos.symlink({home!r}, 'link')\nopen('link/.crushpy-escaped', 'w').write('x')"),
        leaves=True,
    ),
    Escape("change the machine's settings", _try("open('/proc/sys/kernel/core_pattern', 'r+')")),
    Escape("press the system's magic key", _try("open('/proc/sysrq-trigger', 'w')")),
    Escape("plant a hook", _try("open('.git/hooks/pre-commit', 'w').write('x')"), in_repository=True),
    Escape(
        "change .git through a hard link",
        _try("import os\nos.link('.git/config', 'linked')"),
        in_repository=True,
    ),
    Escape("rename .git away", _try("import os\nos.rename('.git', 'git')"), in_repository=True),
    Escape(
        "make the root writable",
        "import subprocess\nasked = 'mount -o remount,rw,bind / && touch /etc/crushpy-escaped && echo "
        + ESCAPED
        + "'\nfor how in (['sh', '-c'], ['unshare', '-Urm', 'sh', '-c']):\n"
        "    subprocess.run([*how, asked], stderr=1)",
    ),
    Escape(
        "reach a server of this machine",
        _try(_CONNECT.format(family="AF_INET", kind="SOCK_STREAM", address="('127.0.0.1', {port})")),
    ),
    Escape(
        "reach the internet",
        _try(_CONNECT.format(family="AF_INET", kind="SOCK_DGRAM", address="('192.0.2.1', 53)")),
    ),
    Escape(
        "reach an abstract socket",
        _try(_CONNECT.format(family="AF_UNIX", kind="SOCK_STREAM", address="'\\0' + {abstract!r}")),
    ),
    Escape(
        "reach a socket in the file system",
        _try(_CONNECT.format(family="AF_UNIX", kind="SOCK_STREAM", address="{socket!r}")),
    ),
    Escape(
        "see or signal crushpy",
        _try(
            "import os\nos.kill({pid}, 0)\nif b'crushpy' not in open('/proc/{pid}/cmdline', 'rb').read():\n"
            "    raise OSError('another one')"
        ),
    ),
    Escape(
        "read the environment of who runs it",
        _try("if not open('/proc/1/environ').read(): raise OSError('empty')"),
    ),
    Escape(
        "trace who runs it",
        "import ctypes\nprint('"
        + ESCAPED
        + "' if ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0 else 'refused')",
    ),
    Escape(
        "type into the terminal",
        _try(
            "import fcntl, termios\nfcntl.ioctl(open('/dev/tty'), getattr(termios, 'TIOCSTI', 0x5412), b'x')"
        ),
    ),
)
