"""Pictures in headless runs: by flag, by `@name`, and looked at by the agent; sent, stored, shown."""

import json
import os
import sqlite3
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from support.command import Cli
from support.headless import MODEL, Run
from support.pictures import looked_at, photo, picture

pytestmark = pytest.mark.slow

BLIND = "openai/gpt-3.5-turbo"
"""The catalog knows it, and that it cannot look at pictures."""


def pictures_in(body: dict[str, Any]) -> list[bytes]:
    """The pictures of a request in OpenAI's chat format."""
    found: list[bytes] = []
    for message in body["messages"]:
        content = message["content"] if isinstance(message["content"], list) else []
        urls = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
        found += [b64decode(url.partition(";base64,")[2]) for url in urls]
    return found


def text_of(body: dict[str, Any]) -> str:
    return json.dumps(body["messages"])


# --- sending ---------------------------------------------------------------------------------------------


def test_pictures_named_by_flags_go_with_the_prompt_in_order(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.png").write_bytes(picture(10, 10))
    (workspace / "b.jpg").write_bytes(picture(20, 20, "JPEG"))
    llm.script("Red, both.")
    assert run("--image", "a.png", "--image", "b.jpg", "What colour?").code == 0
    body = llm.requests[0].body
    assert pictures_in(body) == [picture(10, 10), picture(20, 20, "JPEG")]
    assert "What colour?" in text_of(body)


def test_a_picture_needs_no_words(run: Run, llm: ScriptedLLM, workspace: Path, cli: Cli) -> None:
    (workspace / "a.png").write_bytes(picture())
    llm.script("A red one.")
    assert run("--image", "a.png").code == 0
    assert pictures_in(llm.requests[0].body) == [picture()]
    assert "a.png" in cli("sessions", "list").stdout


def test_a_mentioned_picture_is_attached_and_other_words_are_not(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "docs").mkdir()
    (workspace / "docs" / "a shot.PNG").write_bytes(picture(10, 10))
    (workspace / "b.webp").write_bytes(picture(20, 20, "WEBP"))
    (workspace / "notes.md").write_text("words")
    llm.script("Fine.")
    done = run('Compare @"docs/a shot.PNG" with (@b.webp), see @notes.md and me@b.webp, again @b.webp.')
    assert done.code == 0 and not [notice for notice in done.of("notice") if "attached" in notice["text"]]
    assert pictures_in(llm.requests[0].body) == [picture(10, 10), picture(20, 20, "WEBP")]


@pytest.mark.parametrize("name", ["gone.png", "words.png", "folder.png"])
def test_a_mention_that_is_no_picture_stays_words_and_is_told(
    run: Run, llm: ScriptedLLM, workspace: Path, name: str
) -> None:
    (workspace / "words.png").write_text("just words")
    (workspace / "folder.png").mkdir()
    llm.script("Fine.")
    done = run(f"look at @{name}!")
    assert (
        done.code == 0
        and sum(f"@{name} is not attached" in notice["text"] for notice in done.of("notice")) == 1
    )
    assert f"look at @{name}!" in text_of(llm.requests[0].body)


def test_a_large_photo_is_scaled_turned_and_sent_without_its_notes(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.jpg").write_bytes(photo(4_000, 3_000))
    llm.script("Fine.")
    assert run("--image", "a.jpg", "look").code == 0
    (sent,) = pictures_in(llm.requests[0].body)
    from base64 import b64encode

    seen = looked_at(b64encode(sent).decode())
    assert seen.size == (768, 1_024) and not seen.getexif() and b"SecretCamera" not in sent


def test_a_resumed_conversation_sends_the_same_bytes_though_the_file_has_changed(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.png").write_bytes(picture(10, 10))
    llm.script("One.", "Two.")
    run("--image", "a.png", "first")
    (workspace / "a.png").write_bytes(picture(99, 99))
    assert run("-c", "second").code == 0
    first, second = (request.body["messages"] for request in llm.requests)
    assert second[: len(first)] == first


def test_twenty_pictures_are_sent(run: Run, llm: ScriptedLLM, workspace: Path) -> None:
    flags: list[str] = []
    for number in range(20):
        (workspace / f"{number}.png").write_bytes(picture(10 + number, 10))
        flags += ["--image", f"{number}.png"]
    llm.script("Many.")
    assert run(*flags, "look").code == 0
    assert pictures_in(llm.requests[0].body) == [picture(10 + number, 10) for number in range(20)]


# --- the agent looks -------------------------------------------------------------------------------------


def test_the_agent_looks_at_a_picture_and_the_stream_tells_type_and_size_alone(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.png").write_bytes(picture())
    llm.script(Reply(calls=[Call("view", {"file_path": "a.png"})]), "Red.")
    done = run("what colour is a.png?")
    assert done.code == 0 and pictures_in(llm.requests[1].body) == [picture()]
    (result,) = done.of("tool_result")
    assert result["images"] == [
        {"media_type": "image/png", "size": len(picture()), "name": "a.png", "width": 64, "height": 48}
    ]
    assert "base64" not in done.stdout and len(done.stdout) < 20_000


def test_an_agent_without_eyes_is_told_what_it_cannot_see(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.png").write_bytes(picture())
    llm.script(Reply(calls=[Call("view", {"file_path": "a.png"})]), "I cannot.")
    assert run("-m", BLIND, "what colour is a.png?").code == 0
    assert pictures_in(llm.requests[1].body) == []
    assert "cannot look at pictures" in text_of(llm.requests[1].body)


def test_an_old_picture_is_a_line_for_a_model_without_eyes(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.png").write_bytes(picture())
    llm.script(Reply(calls=[Call("view", {"file_path": "a.png"})]), "Red.", "Blind.", "Seeing again.")
    run("--image", "a.png", "look")
    assert run("-c", "-m", BLIND, "and now?").code == 0
    body = llm.requests[2].body
    line = f"[image a.png, image/png, 64x48, {len(picture())} bytes, not shown"
    assert pictures_in(body) == [] and text_of(body).count(line) == 2
    run("-c", "-m", MODEL, "and now?")
    assert len(pictures_in(llm.requests[3].body)) == 2


# --- refused before any request --------------------------------------------------------------------------


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone.png", "No such file"),
        ("folder", "is a folder"),
        ("words.png", "is not a picture"),
        ("empty.png", "is empty"),
        ("half.png", "damaged or incomplete"),
        ("bomb.png", "20,000x20,000 pixels"),
        ("pipe", "not a regular file"),
        ("/dev/zero", "not a regular file"),
    ],
)
def test_run_refuses_unusable_images_before_any_request(
    run: Run, llm: ScriptedLLM, workspace: Path, home: Path, name: str, words: str
) -> None:
    (workspace / "folder").mkdir()
    (workspace / "words.png").write_text("just words")
    (workspace / "empty.png").touch()
    (workspace / "half.png").write_bytes(picture(300, 200)[:200])
    (workspace / "bomb.png").write_bytes(picture(20_000, 20_000, mode="1"))
    os.mkfifo(workspace / "pipe")
    done = run("--image", name, "look")
    assert done.code == 2 and words in done.result["error"] and name in done.result["error"]
    assert llm.requests == [] and not (home / "crushpy.db").exists()


@pytest.mark.parametrize("model", [BLIND, "demo/tour"])
def test_a_model_without_eyes_is_refused_before_any_request(
    run: Run, llm: ScriptedLLM, workspace: Path, model: str
) -> None:
    (workspace / "a.png").write_bytes(picture())
    done = run("-m", model, "--image", "a.png", "look")
    assert done.code == 2 and f"{model} cannot look at pictures" in done.result["error"]
    assert llm.requests == []


def test_the_settings_know_better_than_the_catalog(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.png").write_bytes(picture())
    assert cli("config", "set", f'models."{BLIND}".images', "true").returncode == 0
    llm.script("Red.")
    assert run("-m", BLIND, "--image", "a.png", "look").code == 0
    assert pictures_in(llm.requests[0].body) == [picture()]


def test_a_conversation_of_a_model_without_eyes_takes_no_picture(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.png").write_bytes(picture())
    llm.script("Hello.")
    run("-m", BLIND, "hi")
    done = run("-c", "--fork", "--image", "a.png", "look")
    assert done.code == 2 and len(llm.requests) == 1


def test_pictures_do_not_go_with_a_list_of_tasks(run: Run, llm: ScriptedLLM, workspace: Path) -> None:
    (workspace / "a.png").write_bytes(picture())
    (workspace / "tasks.txt").write_text("one\n")
    done = run("--tasks", "tasks.txt", "--image", "a.png")
    assert done.code == 2 and "--image" in done.result["error"]


def test_the_chat_refuses_what_cannot_be_sent_before_it_takes_the_terminal(cli: Cli, workspace: Path) -> None:
    assert cli("--image", "gone.png").returncode == 2


# --- what is kept and shown ------------------------------------------------------------------------------


def test_a_picture_is_counted_as_its_vendor_counts(
    run: Run, llm: ScriptedLLM, workspace: Path, home: Path
) -> None:
    (workspace / "a.png").write_bytes(picture(1_024, 768))
    llm.script("One.", "Two.")
    run("--image", "a.png", "look")
    run("-c", "and again")
    with sqlite3.connect(home / "crushpy.db") as database:
        parts = database.execute("select parts from message where role = 'user' order by seq").fetchone()[0]
    (image,) = [part for part in json.loads(parts) if part["type"] == "image"]
    assert (image["name"], image["width"], image["height"]) == ("a.png", 1_024, 768)
    assert b64decode(image["data"]) == picture(1_024, 768)


def test_exports_show_a_line_instead_of_image_bytes(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.png").write_bytes(picture())
    llm.script(Reply(calls=[Call("view", {"file_path": "a.png"})]), "Red.")
    session = run("--image", "a.png", "look").result["session_id"]
    line = f"[image: a.png, image/png, 64x48, {len(picture())} bytes]"
    assert cli("sessions", "show", session).stdout.count(line) == 2
    assert cli("sessions", "export", session).stdout.count(line) == 2
    for command in ("show", "export"):
        form = ("--json",) if command == "show" else ("--format", "json")
        text = cli("sessions", command, session, *form).stdout
        assert '"data": "i' not in text and text.count('"media_type": "image/png"') == 2
        assert f'"size": {len(picture())}' in text
    assert "a.png" in cli("sessions", "search", "a.png").stdout
