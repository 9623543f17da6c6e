"""Editing the summary template, with real keys on real files."""

import os
import stat
from pathlib import Path

import pytest
from hosting import EVIL, EVIL_SHOWN, SIZES, no_preview, shown
from scripted_llm.server import ScriptedLLM
from support.talk import Talks

from crushpy.core.boundary import FactCount
from crushpy.core.errors import CrushpyError
from crushpy.core.paths import Paths
from crushpy.core.templates import Template, Templates, shipped_dir
from crushpy.engine.compaction.draft import Rehearsal
from crushpy.tui.screens.template import TemplateScreen

pytestmark = pytest.mark.slow


def own() -> Path:
    return Paths().templates / "summary.md"


def shipped() -> str:
    return (shipped_dir() / "summary.md").read_text()


def templates(project: Path | None = None) -> Templates:
    return Templates(Paths().templates, project)


def put(text: str) -> None:
    own().parent.mkdir(parents=True, exist_ok=True)
    own().write_text(text)


@pytest.mark.parametrize("size", SIZES)
async def test_the_template_in_force_and_the_keys_are_there_at_every_size(size: tuple[int, int]) -> None:
    async def preview(_: str) -> None:
        return None

    async with shown(TemplateScreen(templates(), preview), size) as screen:
        assert "Summary template  default" in screen.text
        assert shipped().split()[0] in screen.text
        for key in ("Ctrl+S Save", "F5 Preview", "F8 Restore default", "F4 $EDITOR", "Esc Close"):
            assert key in screen.text
        assert "✓" in screen.text
        await screen.press("escape")
        assert screen.results == [None]
    assert not own().exists()


async def test_saving_writes_the_users_own_file_and_it_is_in_force() -> None:
    put("old {{ focus }}\n")
    async with shown(TemplateScreen(templates(), no_preview)) as screen:
        assert "yours" in screen.text
        await screen.type("New ")
        assert "not saved" in screen.text
        await screen.press("ctrl+s")
        assert "not saved" not in screen.text
        await screen.press("escape")
        assert screen.results == [None]
    assert own().read_text() == "New old {{ focus }}\n"
    assert stat.S_IMODE(own().stat().st_mode) == 0o600
    assert templates().find("summary").text.startswith("New old")
    assert os.listdir(own().parent) == ["summary.md"]


async def test_the_first_save_makes_a_copy_of_the_shipped_one() -> None:
    async with shown(TemplateScreen(templates(), no_preview)) as screen:
        await screen.type("X")
        await screen.press("ctrl+s")
        assert any(str(own()) in message for message in screen.messages)
    assert own().read_text() == "X" + shipped()


async def test_saving_what_was_not_changed_says_so_and_writes_nothing() -> None:
    async with shown(TemplateScreen(templates(), no_preview)) as screen:
        await screen.press("ctrl+s")
        assert any("no changes to save" in message for message in screen.messages)
        await screen.press("escape")
        assert screen.results == [None]
    assert not own().exists()


async def test_line_name_and_reason_are_said_while_typing() -> None:
    put("fine\n\n")
    async with shown(TemplateScreen(templates(), no_preview)) as screen:
        await screen.press("down")
        await screen.type("{{ nonsense }}")
        assert "✗ summary.md, line 2: 'nonsense' is undefined" in screen.text
        assert "Names it may use: cwd, focus" in screen.text
        await screen.press(*["backspace"] * 14)
        assert "✓" in screen.text


async def test_a_broken_template_is_saved_only_when_insisted_on() -> None:
    put("fine")
    async with shown(TemplateScreen(templates(), no_preview)) as screen:
        await screen.type("{{ ")
        await screen.press("ctrl+s")
        assert own().read_text() == "fine"
        assert any("Ctrl+S again" in message for message in screen.messages)
        await screen.press("ctrl+s")
        assert own().read_text() == "{{ fine"


async def test_an_empty_template_is_called_empty() -> None:
    put("a")
    async with shown(TemplateScreen(templates(), no_preview)) as screen:
        await screen.press("delete")
        assert "✗ summary.md: it is empty" in screen.text


async def test_escape_says_before_edits_are_lost() -> None:
    put("kept")
    async with shown(TemplateScreen(templates(), no_preview)) as screen:
        await screen.type("x")
        await screen.press("escape")
        assert screen.results == []
        await screen.type("y")
        await screen.press("escape")
        assert screen.results == []  # it was edited since the warning
        await screen.press("escape")
        assert screen.results == [None]
    assert own().read_text() == "kept"


async def test_reset_asks_once_keeps_the_old_and_shows_the_shipped_text() -> None:
    put("mine")
    async with shown(TemplateScreen(templates(), no_preview)) as screen:
        await screen.press("f8")
        assert own().exists()
        await screen.press("f8")
        assert not own().exists()
        assert own().with_suffix(".md.bak").read_text() == "mine"
        assert "Summary template  default" in screen.text
        assert shipped().split()[0] in screen.text
        await screen.press("escape")
        assert screen.results == [None]


async def test_a_file_that_cannot_be_written_is_told_and_nothing_is_lost(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "templates").write_text("a file where the folder should be")
    async with shown(TemplateScreen(templates(), no_preview)) as screen:
        await screen.type("New ")
        await screen.press("ctrl+s")
        assert any("cannot be written" in message for message in screen.messages)
        assert "not saved" in screen.text
        await screen.press("escape")
        assert screen.results == []


async def test_a_projects_own_template_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "summary.md").write_text("the project's")
    async with shown(TemplateScreen(templates(tmp_path), no_preview), (120, 24)) as screen:
        assert "this project's" in screen.text
        assert "yours is used elsewhere" in screen.text
        await screen.type("x")
        await screen.press("ctrl+s")
    assert own().read_text() == "xthe project's"
    assert (tmp_path / "summary.md").read_text() == "the project's"


# --- preview and editor --------------------------------------------------------------------------------


async def test_the_preview_gets_the_edited_text_and_shows_what_it_gives() -> None:
    tried: list[str] = []

    async def preview(text: str) -> Rehearsal:
        tried.append(text)
        return Rehearsal(
            EVIL, "s", 50_000, 8_000, 40, 6, 0.0123, {"paths": FactCount(4, 1, 3)}, 0.75, 0.25, "slow"
        )

    put("mine")
    async with shown(TemplateScreen(templates(), preview), (120, 40)) as screen:
        await screen.type("not ")
        await screen.press("f5")
        assert tried == ["not mine"]
        carried = "3 of 4 recorded facts carried; not carried: 1 path (25% by the summary alone)"
        for part in ("50,000 → 8,000 tokens", carried, "$0.0123", "slow"):
            assert part in screen.text
        assert EVIL_SHOWN in screen.text
        await screen.press("escape")
        assert EVIL_SHOWN not in screen.text
        assert screen.results == []
    assert own().read_text() == "mine"


async def lengthy(text: str) -> Rehearsal:
    """A preview that does not fit on any screen."""
    carried = "\n".join(f"carried over {number}" for number in range(100))
    return Rehearsal(carried, "A summary.", 50_000, 8_000, 40, 6, 0.0, {}, None, None, "")


@pytest.mark.parametrize("size", SIZES)
async def test_the_preview_scrolls_and_esc_returns_to_the_text(size: tuple[int, int]) -> None:
    put("mine")
    async with shown(TemplateScreen(templates(), lengthy), size) as screen:
        await screen.type("not ")
        await screen.press("f5")
        assert "nothing was changed." in screen.text
        await screen.press("end")
        assert "carried over 99" in screen.text
        await screen.press("escape")
        await screen.type("really ")
        assert "not really mine" in screen.text
        assert "carried over" not in screen.text


async def test_a_preview_that_fails_says_why_and_nothing_to_leave_behind_is_said() -> None:
    answers: list[CrushpyError | None] = [CrushpyError("no network", "Plug it in."), None]

    async def preview(text: str) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    put("mine")
    async with shown(TemplateScreen(templates(), preview)) as screen:
        await screen.press("f5")
        assert "no network" in screen.text
        await screen.press("escape", "f5")
        assert "too short to compact" in " ".join(screen.text.split())


async def test_a_broken_text_is_not_tried() -> None:
    async def preview(text: str) -> None:
        raise AssertionError(text)

    put("{{ nope }}")
    async with shown(TemplateScreen(templates(), preview)) as screen:
        await screen.press("f5")
        assert any("Fix the template first" in message for message in screen.messages)


async def test_the_users_editor_gets_the_text_and_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "ed.sh"
    editor.write_text('#!/bin/sh\nprintf "%s and more {{ nope }}" "$(cat "$1")" > "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    put("mine")
    async with shown(TemplateScreen(templates(), no_preview)) as screen:
        await screen.press("f4")
        assert "mine and more {{ nope }}" in screen.text
        assert "'nope' is undefined" in screen.text
        assert "not saved" in screen.text
    assert own().read_text() == "mine"


async def test_template_screen_reports_a_missing_editor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.delenv("VISUAL", raising=False)
    async with shown(TemplateScreen(templates(), no_preview)) as screen:
        await screen.press("f4")
        assert any("No editor is set" in message for message in screen.messages)


async def test_escape_sequences_in_a_template_are_not_drawn() -> None:
    put(f"Look: {EVIL}")
    async with shown(TemplateScreen(templates(), no_preview), (120, 24)) as screen:
        assert f"Look: {EVIL_SHOWN}" in screen.text
        assert "\x1b" not in screen.text


async def test_a_real_session_is_rehearsed_with_the_edited_template(talks: Talks, llm: ScriptedLLM) -> None:
    def answer(body: dict[str, object]) -> str:
        asked = str(body["messages"])
        return "Haiku summary." if "Write a haiku." in asked else "Yes. " * 300

    llm.always(answer)
    talk = await talks()
    for number in range(6):
        await talk.ask(f"Tell me about {number}")

    async def preview(text: str) -> Rehearsal | None:
        return await talk.conversation.context.rehearse(template=Template("summary", "edited", "file", text))

    put("{# mine #}Write a haiku.")
    stored = talk.conversation.history
    async with shown(TemplateScreen(talk.conversation.templates, preview)) as screen:
        await screen.press("f5")
        assert "Haiku summary." in screen.text
        assert "recorded facts carried" in screen.text
    assert talk.conversation.history == stored


async def test_the_warning_about_unsaved_text_ends_with_the_screen() -> None:
    async with shown(TemplateScreen(templates(), no_preview)) as screen:
        await screen.type("New ")
        await screen.press("escape")
        assert any("The template is not saved" in message for message in screen.messages)
        await screen.press("escape")
        assert screen.results == [None] and not screen.messages
