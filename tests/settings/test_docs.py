"""The examples in docs/settings.md work."""

import re
import tomllib
from pathlib import Path

from crushpy.core.paths import Paths
from crushpy.settings import setting_keys
from crushpy.settings.layers import load

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_every_key_has_a_description() -> None:
    assert all(leaf.description.endswith(".") for leaf in setting_keys.leaves().values())


def test_the_example_on_the_page_loads_without_a_warning(home: Path, workspace: Path) -> None:
    [example] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(example)
    loaded = load(Paths(), workspace, environ={})
    assert loaded.warnings == ()
    assert loaded.settings.model == tomllib.loads(example)["model"]


def test_the_variables_on_the_page_are_understood(workspace: Path) -> None:
    variables = dict(re.findall(r"^(CRUSHPY_\w+)=(.+)$", PAGE.read_text(), re.MULTILINE))
    assert len(variables) >= 5
    loaded = load(Paths(), workspace, environ={name: text.strip("'") for name, text in variables.items()})
    assert loaded.warnings == ()
    assert loaded.settings.permissions.deny == ("bash(git push)", "fetch")
