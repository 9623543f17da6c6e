"""The user's own editor: real programs, started as the user's would be."""

import stat
from pathlib import Path

import pytest
from prompt_host import Host, send, type_text
from textual import events

LINES = "\n".join(f"line {number}" for number in range(50))


@pytest.fixture(autouse=True)
def no_editor(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a shell script the editor; the file is its first argument."""

    def make(script: str, variable: str = "EDITOR", arguments: str = "") -> None:
        path = tmp_path / "my editor"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv(variable, f"'{path}'{arguments}")

    return make


async def edit(app: Host, pilot) -> None:
    await pilot.press("ctrl+g")
    await app.workers.wait_for_complete()
    await pilot.pause()


async def test_the_editor_gets_the_draft_and_gives_it_back(editor):
    editor('printf " and more\\n" >> "$1"')
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, "words")
        await edit(app, pilot)
        assert app.suspended == 1
        await pilot.press("!", "enter")
        assert app.heard == [("submitted", "words and more!")]


async def test_visual_comes_before_editor_and_may_have_arguments(editor, monkeypatch):
    monkeypatch.setenv("EDITOR", "false")
    editor('echo "$1" > "$2"', "VISUAL", " --wait")
    app = Host()
    async with app.run_test() as pilot:
        await edit(app, pilot)
        assert app.prompt.text == "--wait"


async def test_external_editor_names_the_variable_when_none_is_set(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, "words")
        await edit(app, pilot)
        assert "No editor is set" in app.notices
        assert "EDITOR=" in app.notices
        assert app.prompt.text == "words"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("false", "failed (exit code 1)"),
        ("no-such-editor", "cannot be started"),
        ("'open", "cannot be parsed"),
    ],
)
async def test_an_editor_that_fails_is_named_and_the_draft_kept(command, said, monkeypatch):
    monkeypatch.setenv("EDITOR", command)
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, "words")
        await edit(app, pilot)
        assert said in app.notices
        assert app.prompt.text == "words"


async def test_a_folded_paste_is_there_in_full_and_folded_again_where_it_was_left_alone(editor, tmp_path):
    editor(f'cp "$1" {tmp_path}/seen; printf " behind" >> "$1"')
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, "before ")
        await send(pilot, events.Paste(LINES))
        await edit(app, pilot)
        assert (tmp_path / "seen").read_text() == f"before {LINES}"
        assert app.prompt.text == "before [pasted 50 lines #1] behind"


async def test_the_file_is_private_and_gone_afterwards(editor, tmp_path):
    editor(f'stat -c "%a %n" "$1" > {tmp_path}/seen')
    app = Host()
    async with app.run_test() as pilot:
        await edit(app, pilot)
    mode, name = (tmp_path / "seen").read_text().split()
    assert mode == "600"
    assert not Path(name).exists()


async def test_control_characters_from_an_editor_are_taken_out(editor):
    editor('printf "a\\033[31mb\\a" > "$1"')
    app = Host()
    async with app.run_test() as pilot:
        await edit(app, pilot)
        assert app.prompt.text == "ab"


async def test_external_editor_falls_back_to_an_installed_one(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    path = tmp_path / "vi"
    path.write_text('#!/bin/sh\nprintf " by vi" >> "$1"\n')
    path.chmod(0o755)
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, "written")
        await edit(app, pilot)
        assert app.prompt.text == "written by vi"


async def test_pastes_that_the_editor_changed_stay_pastes(editor):
    editor('sed -i -e "s/never/NEVER/" -e "s/line 7/LINE 7/" "$1" && printf "mine\\n" >> "$1"')
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, "see ")
        await send(pilot, events.Paste("never push\n"), events.Paste(LINES))
        await edit(app, pilot)
        assert "".join(app.prompt.pastes.contained(app.prompt.text)).startswith("NEVER push\nline 0\n")
        assert "LINE 7\n" in "".join(app.prompt.pastes.contained(app.prompt.text))
