"""Settings are read before the first request: they must not bring heavy modules with them."""

import subprocess
import sys
from pathlib import Path


def test_loading_settings_imports_nothing_heavy(home: Path, workspace: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('model = "a"\n')
    code = (
        "import sys; from pathlib import Path\n"
        "from crushpy.core.paths import Paths; from crushpy.settings.layers import load\n"
        "assert load(Paths(), Path.cwd()).settings.model == 'a'\n"
        "heavy = ('tomlkit', 'difflib', 'typer', 'platformdirs', 'json', 'pydantic')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
