"""Another machine, as far as crushpy can tell: a host name of its own."""

import shutil
import subprocess
from functools import cache

import pytest

_BECOME = 'hostname "$0" && exec "$@"'
_WAYS = (("unshare", "--uts"), ("unshare", "--user", "--map-root-user", "--uts"))


def on_machine(name: str) -> tuple[str, ...]:
    """What a command is started by to run there, as the same process. Skips where no name can be given."""
    for way in _WAYS:
        if _works(way):
            return (*way, "sh", "-c", _BECOME, name)
    pytest.skip("no host name of its own can be given to a process here (unshare --uts)")


@cache
def _works(way: tuple[str, ...]) -> bool:
    if shutil.which("unshare") is None or shutil.which("hostname") is None:
        return False
    tried = subprocess.run(
        [*way, "sh", "-c", _BECOME, "elsewhere", "hostname"], capture_output=True, text=True, check=False
    )
    return tried.stdout.strip() == "elsewhere"
