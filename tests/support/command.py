"""What the `cli` fixture is."""

import subprocess
from collections.abc import Callable

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
