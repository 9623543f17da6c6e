"""The page about settings says of every key what the schema says."""

import re
import tomllib
from pathlib import Path

from crushpy.core.paths import Paths
from crushpy.settings import load, setting_keys

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def rows() -> dict[str, list[str]]:
    """The table of keys: key -> default, meaning, what it takes."""
    lines = [
        line for line in PAGE.read_text().splitlines() if line.startswith("| `") and line.count("|") == 5
    ]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {key.strip("`"): rest for key, *rest in cells}


def told_as(key: str) -> str:
    """Keys of the app's commands share a row: the commands are listed on the page about the app."""
    return "keys.<command>" if key.startswith("keys.") else key


def test_every_key_is_on_the_page_with_its_default_and_what_it_takes() -> None:
    table = rows()
    assert list(table) == list(dict.fromkeys(told_as(leaf.key) for leaf in setting_keys.leaves().values()))
    for leaf in setting_keys.leaves().values():
        default, meaning, takes = table[told_as(leaf.key)]
        assert default == ("" if leaf.default is None else f"`{setting_keys.toml_value(leaf.default)}`"), (
            leaf.key
        )
        assert leaf.allowed.startswith(takes), leaf.key
        assert meaning


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
