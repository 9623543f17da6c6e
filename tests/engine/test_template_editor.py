"""A user's own template: checked as a text, saved whole or not at all, taken out of use."""

from pathlib import Path

import pytest

from crushpy.core.errors import UsageError
from crushpy.core.paths import Paths
from crushpy.core.templates import Templates
from crushpy.engine.template_editor import OwnTemplate


@pytest.fixture
def own() -> OwnTemplate:
    return OwnTemplate(Templates(Paths().templates))


def test_saved_template_is_used_and_a_reset_one_is_kept(own: OwnTemplate) -> None:
    assert own.in_force().layer == "shipped"
    assert own.in_force().layer == "shipped"
    own.save("Mine é")
    assert (own.in_force().layer, own.in_force().text) == ("user", "Mine é")
    kept = own.reset()
    assert kept is not None
    assert kept.read_text() == "Mine é"
    assert own.in_force().layer == "shipped"
    assert own.reset() is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fine", None),
        ("{{ focus }}{{ cwd }}", None),
        ("a\n{{ nope }}", "summary.md, line 2: 'nope' is undefined"),
        ("{% if %}", "summary.md, line 1: "),
        (" \n", "summary.md: it is empty"),
        ("{{ focus }}", "summary.md: it is empty"),
        ("x" * 300_000, "summary.md: larger than 256 kB"),
        ("{{ 'x' * 99999999 }}", "too long"),
    ],
)
def test_a_text_is_checked_without_being_saved(own: OwnTemplate, text: str, said: str | None) -> None:
    problem = own.check(text)
    assert (problem is None) is (said is None)
    assert said is None or said in str(problem)
    assert not own.file.exists()


def test_a_symlink_stays_one(own: OwnTemplate, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.md"
    real.write_text("old")
    own.file.parent.mkdir(parents=True)
    own.file.symlink_to(real)
    own.save("new")
    assert own.file.is_symlink()
    assert real.read_text() == "new"


def test_a_failed_save_leaves_what_was_there(own: OwnTemplate) -> None:
    own.file.parent.mkdir(parents=True)
    own.file.mkdir()  # a folder stands where the file should be
    (own.file / "kept").write_text("kept")
    with pytest.raises(UsageError, match="cannot be written"):
        own.save("new")
    assert [path.name for path in own.file.parent.iterdir()] == ["summary.md"]
    assert (own.file / "kept").read_text() == "kept"
