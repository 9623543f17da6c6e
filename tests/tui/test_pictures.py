"""Pictures in the chat: dropped, pasted, mentioned, queued; seen above the prompt and in the transcript."""

import json
from base64 import b64decode
from pathlib import Path

import pytest
from driving import Driven, Start, start
from prompt_host import send
from scripted_llm import Call, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.pictures import picture
from test_clipboard import program, programs
from textual import events

from crushpy.tui.terminal.clipboard import existing_images, may_be_images
from crushpy.util.images import MAX_PICTURE_FILE

__all__ = ["programs", "start"]


async def paste(app: Driven, text: str) -> None:
    await send(app.pilot, events.Paste(text))


def sent(llm: ScriptedLLM, number: int = -1) -> list[bytes]:
    text = json.dumps(llm.requests[number].body["messages"])
    return [b64decode(piece.partition('"')[0]) for piece in text.split(";base64,")[1:]]


@pytest.fixture
def shot(workspace: Path) -> Path:
    (workspace / "a shot.png").write_bytes(picture(1_024, 768))
    return workspace / "a shot.png"


async def test_a_dropped_file_is_attached_and_sent_with_the_words(
    start: Start, llm: ScriptedLLM, shot: Path
) -> None:
    llm.script("Red.")
    async with start() as app:
        await paste(app, str(shot).replace(" ", "\\ ") + " ")
        await app.sees("[a shot.png 1024x768 · ~765 tokens]")
        assert app.chat.prompt.draft == ""
        await app.say("what colour?")
        await app.sees("Red.", "[image: a shot.png, image/png, 1024x768, ")
        await app.sees_no("~765 tokens")
        assert sent(llm) == [picture(1_024, 768)]


async def test_a_picture_is_sent_without_words_and_seen_again_after_a_resume(
    start: Start, llm: ScriptedLLM, shot: Path
) -> None:
    llm.script("Red.")
    async with start() as app:
        await paste(app, str(shot))
        await app.sees("1024x768")
        await app.press("enter")
        await app.sees("Red.")
        await app.rests()
    async with start(resume_latest=True) as app:
        await app.sees("[image: a shot.png, image/png, 1024x768, ", "Red.")


async def test_backspace_and_ctrl_c_take_pictures_away(start: Start, shot: Path) -> None:
    async with start() as app:
        await paste(app, str(shot))
        await app.sees("1024x768")
        await app.type("ab")
        await app.press("backspace", "backspace")
        await app.sees("1024x768")
        await app.press("backspace")
        await app.sees_no("1024x768")
        await paste(app, str(shot))
        await app.sees("1024x768")
        await app.press("ctrl+c")
        await app.sees_no("1024x768")
        assert app.chat.attachments.images == ()


async def test_a_click_on_its_mark_takes_one_away(start: Start, workspace: Path) -> None:
    for name in ("a.png", "b.png"):
        (workspace / name).write_bytes(picture())
    async with start() as app:
        await paste(app, "a.png b.png")
        await app.sees("[a.png 64x48", "[b.png 64x48")
        mark = app.text.splitlines()[app.chat.attachments.region.y].index("✕")
        await app.pilot.click(app.chat.attachments, offset=(mark - app.chat.attachments.region.x, 0))
        await app.sees_no("[a.png")
        assert [image.name for image in app.chat.attachments.images] == ["b.png"]


@pytest.mark.parametrize("text", ["see/gone.png", "words.png", "two words and a.png"])
async def test_a_paste_that_names_no_picture_is_typed(start: Start, workspace: Path, text: str) -> None:
    (workspace / "words.png").write_text("just words")
    async with start() as app:
        await paste(app, text)
        await app.until(lambda: app.chat.prompt.draft == text, "the words")
        assert app.chat.attachments.images == ()
        if text == "words.png":
            await app.sees("Pictures may be PNG, JPEG, GIF or WebP.")


async def test_a_completed_picture_keeps_its_at_and_is_attached(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "shot.png").write_bytes(picture())
    llm.script("Red.")
    async with start() as app:
        await app.type("see @sho")
        await app.sees("› shot.png")
        await app.press("tab")
        assert app.chat.prompt.draft == "see @shot.png "
        await app.press("enter")
        await app.sees("Red.", "[image: shot.png")
        assert sent(llm) == [picture()]


@pytest.mark.slow
async def test_a_queued_picture_is_as_it_was_when_it_was_queued_and_can_be_taken_back(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.png").write_bytes(picture())
    llm.script(Stall(Reply("Wait for it.", chunk=4)), "Red.")
    async with start() as app:
        await app.say("first")
        await app.sees("Wait")
        await paste(app, "a.png")
        await app.sees("[a.png 64x48")
        await app.say("second")
        await app.sees("second [a.png]")
        await app.press("tab", "tab", "enter")
        await app.sees("[a.png 64x48 ·")
        assert app.chat.prompt.draft == "second"
        (workspace / "a.png").write_bytes(b"gone")
        await app.press("enter")
        await app.sees("second [a.png]")
        llm.release()
        await app.sees("Red.")
        assert sent(llm) == [picture()]


async def test_a_model_without_eyes_takes_no_picture(start: Start, workspace: Path) -> None:
    (workspace / "a.png").write_bytes(picture())
    async with start(model="demo/tour") as app:
        await paste(app, "a.png")
        await app.sees("demo/tour cannot look at pictures")
        assert app.chat.attachments.images == () and app.chat.prompt.draft == "a.png"


async def test_viewed_image_is_a_line(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    (workspace / "a.png").write_bytes(picture())
    llm.script(Reply(calls=[Call("view", {"file_path": "a.png"})]), "Red.")
    async with start() as app:
        await app.say("what colour is it?")
        await app.sees("Read a.png", "Red.")
        assert sent(llm) == [picture()]


# --- the clipboard -----------------------------------------------------------------------------------------


async def test_a_picture_on_the_clipboard_is_attached(
    start: Start, llm: ScriptedLLM, shot: Path, programs: Path
) -> None:
    llm.script("Red.")
    shows = f"case $* in *TARGETS*) echo image/png;; *image/png*) cat '{shot}';; esac"
    program(programs, "xclip", shows)
    async with start() as app:
        await app.press("ctrl+v")
        await app.say("what is it?")  # sent while it may still be read
        await app.sees("Red.", "[image: pasted.png, image/png, 1024x768")
        assert sent(llm) == [picture(1_024, 768)]


@pytest.mark.parametrize("script", ["exit 1", "echo UTF8_STRING", "printf 'image/png\\n'", "sleep 1000"])
async def test_paste_inserts_text_when_the_clipboard_has_no_image(
    start: Start, programs: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crushpy.tui.terminal.clipboard.PASTE_TIMEOUT_S", 0.3)
    program(programs, "xclip", script)
    async with start() as app:
        app.app.copy_to_clipboard("earlier words")
        await app.press("ctrl+v")
        await app.until(lambda: app.chat.prompt.draft == "earlier words", "the words")
        await app.until(lambda: not app.chat.attachments.reading, "the end of it")


# --- paths -------------------------------------------------------------------------------------------------


def test_paths_are_read_as_terminals_write_them(tmp_path: Path) -> None:
    (tmp_path / "a b.png").touch()
    (tmp_path / "c.JPG").touch()
    first, second = str(tmp_path / "a b.png"), str(tmp_path / "c.JPG")
    for text in (first, f"'{first}'", first.replace(" ", "\\ "), f"file://{first.replace(' ', '%20')}"):
        assert may_be_images(text) and existing_images(text, "/") == [first], text
    for text in (f"'{first}' {second}", f"{first}\n{second}\n"):
        assert may_be_images(text) and existing_images(text, "/") == [first, second], text
    assert existing_images("c.JPG", str(tmp_path)) == [second]
    assert existing_images(f"look at {second}", "/") == []
    assert not may_be_images("words") and not may_be_images("")


async def test_a_mentioned_file_says_whether_it_is_attached_or_only_named(
    start: Start, shot: Path, workspace: Path
) -> None:
    (workspace / "notes.txt").write_text("words")
    (workspace / "noted.txt").write_text("words\n" * 20_000)
    (workspace / "notary.bin").write_bytes(b"\0" * 100)
    (workspace / "__pycache__").mkdir()
    (workspace / "__pycache__" / "notes.txt").write_text("words")
    with (workspace / "big.png").open("wb") as file:
        file.truncate(MAX_PICTURE_FILE + 1)
    async with start(size=(100, 30)) as app:
        await app.type("see @not")
        await app.sees("notes.txt", "attached", "noted.txt", "path only (120 kB)")
        assert "notary.bin" not in app.text and "__pycache__" not in app.text
        await app.type(" @a")
        await app.sees("a shot.png", "picture")
        await app.press("escape")
        await app.press("ctrl+u")
        await app.type("see @big")
        await app.sees("big.png", "too large to attach")
