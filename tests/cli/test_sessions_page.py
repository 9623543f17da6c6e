"""`crushpy sessions export --format html`: what the file holds, and what happens if it cannot be written."""

import asyncio
import base64
import hashlib
import json
import os
import pty
import re
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.command import Cli
from support.conversations import begun, continued
from support.stored import a_session, answered, replied, said

from crushpy.core.ids import new_id
from crushpy.core.messages import (
    CallDecision,
    Diff,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from crushpy.engine.session.tree import fork_session, undo_compaction
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store

pytestmark = pytest.mark.slow

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
HOSTILE = "</script><script>alert(1)</script><!--<script><img src=x onerror=alert(2)>\x1b]52;c;eA==\x07\u202e"
FIXED = "default-src 'none'; base-uri 'none'; form-action 'none'"
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()

Fill = Callable[[Callable[[Store], Awaitable[Any]]], Any]


@pytest.fixture
def fill(home: Path) -> Fill:
    """Writes to the database that the command reads."""

    def run(write: Callable[[Store], Awaitable[Any]]) -> Any:
        async def write_all() -> Any:
            store = Store(home / "crushpy.db")
            made = await write(store)
            await store.close()
            return made

        return asyncio.run(write_all())

    return run


async def converse(store: Store, cwd: Path) -> SessionInfo:
    """Two sessions with everything a page shows; the second is the tip."""
    first = a_session(str(cwd), title=f"fix {HOSTILE}", model="openai/one")
    await store.sessions.create(first, said(f"use {KEY} please {HOSTILE}"))
    call = ToolCall("c1", "edit", {"file_path": "a.py", "password": "opensesame"})
    reply = replied("I edit.", call, usage=Usage(1000, 20, 300, 0, 0.0125))
    thinking = Thinking("pondering aloud", ({"signature": "sealed"},))
    await store.messages.add(first.id, msgspec.structs.replace(reply, parts=(thinking, *reply.parts)))
    diff = Diff("a.py", "--- a.py\n+++ a.py\n@@ -1 +1 @@\n-old line\n+new line\n", 1, 1)
    result = ToolResult("c1", "edit", "edited a.py", images=(Image("image/png", PIXEL),), display=diff)
    await store.messages.add(first.id, Message(new_id(), "tool", (result,), time.time()))
    await store.messages.add(first.id, replied("Done.", usage=Usage(1500, 30, 900, 0, 0.01)))
    return await continued(store, first, "## Goal\nA summary.", "go on", "Gone on.", cost=0.002)


def written(text: str) -> dict[str, Any]:
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    return json.loads(data)


def page(cli: Cli, session: str, *options: str) -> tuple[str, str]:
    done = cli("sessions", "export", session, "--format", "html", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


# --- the file ----------------------------------------------------------------------------------------------


def test_the_policy_allows_the_pages_own_style_and_script_and_nothing_else(
    cli: Cli, workspace: Path, fill: Fill
) -> None:
    tip = fill(lambda store: converse(store, workspace))
    text, _ = page(cli, tip.id)
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)

    def digest(element: str) -> str:
        (content,) = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()

    own = f"style-src 'sha256-{digest('style')}'; script-src 'sha256-{digest('script')}'"
    assert policy == f"{FIXED}; {own}"
    with_images, _ = page(cli, tip.id, "--images")
    assert f"{policy}; img-src data:" in with_images
    assert not re.findall(r"""<(?:link|iframe|base|form)|\b(?:src|href|style|on\w+)=["']""", text)


def test_hostile_text_ends_no_element_and_is_never_parsed(cli: Cli, workspace: Path, fill: Fill) -> None:
    tip = fill(lambda store: converse(store, workspace))
    text, _ = page(cli, tip.id)
    assert text.count("</script") == 2
    assert text.count("<!--") == text.count("<img") == 0
    assert not set("\x1b\x07\u202e") & set(text)
    assert "<title>fix &lt;/script&gt;" in text
    (prompt,) = written(text)["sessions"][0]["messages"][0]["parts"]
    assert "<script><img src=x onerror=alert(2)>" in json.dumps(prompt["nodes"])
    script = text.rpartition("<script>")[2]
    for sink in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
    ):
        assert sink not in script
    assert re.findall(r'setAttribute\("href", (.*?)\)', script) == ["address", "`#${id}`"]


def test_the_same_conversation_gives_the_same_bytes(cli: Cli, workspace: Path, fill: Fill) -> None:
    tip = fill(lambda store: converse(store, workspace))
    first, _ = page(cli, tip.id)
    cli("sessions", "export", tip.id, "--format", "html", "--output", "page.html")
    assert (workspace / "page.html").read_bytes() == first.encode()
    assert (workspace / "page.html").stat().st_mode & 0o777 == 0o600


def test_page_contains_tree_boundary_diff_and_cost(cli: Cli, workspace: Path, fill: Fill) -> None:
    tip = fill(lambda store: converse(store, workspace))
    data = written(page(cli, tip.id)[0])
    first, second = data["sessions"]
    assert (data["exported"], data["lineage"], second["tip"]) == (tip.id, [0, 1], True)
    assert second["boundary"]["facts"]["paths"] == [4, 2, 3]
    (seed,) = second["messages"][0]["parts"]
    assert seed["summary"] == [["h2", "", "Goal"], ["p", "", "A summary."]]
    assert seed["evidence"] == "files changed: a.py"
    assert first["messages"][2]["parts"][0]["display"]["unified"].endswith("-old line\n+new line\n")
    assert data["usage"]["cost"] == pytest.approx(0.0225)


def test_every_redaction_is_listed_with_kind_place_and_count(cli: Cli, workspace: Path, fill: Fill) -> None:
    tip = fill(lambda store: converse(store, workspace))
    text, told = page(cli, tip.id)
    data = written(text)
    assert KEY not in text
    assert "opensesame" not in text
    user, assistant = data["sessions"][0]["messages"][:2]
    root = data["conversation"]
    assert [
        (redaction["kind"], redaction["count"], redaction["message"]) for redaction in data["redactions"]
    ] == [
        ("key or token", 1, user["id"]),
        ("value of a secret's name", 1, assistant["id"]),
    ]
    assert f"redacted: key or token, 1 in session {root}, message {user['id']} (user)" in told
    assert "2 redactions." in told
    assert text.count("[redacted]") == 2 + text.rpartition("<script>")[2].count("[redacted]")
    kept, told = page(cli, tip.id, "--no-redact")
    assert KEY in kept
    assert "Secrets are not redacted." in told


def test_a_key_that_control_characters_divide_is_redacted(cli: Cli, workspace: Path, fill: Fill) -> None:
    divided = KEY[:12] + "\x1b[0m" + KEY[12:]
    info = fill(lambda store: begun(store, "t", f"my key is {divided}", cwd=str(workspace)))
    assert KEY[:12] not in page(cli, info.id)[0]


def test_thinking_and_images_are_left_out_unless_wanted(cli: Cli, workspace: Path, fill: Fill) -> None:
    tip = fill(lambda store: converse(store, workspace))
    text, told = page(cli, tip.id)
    assert "pondering" not in text
    assert PIXEL not in text
    assert "left out: 1 image (--images adds them)" in told
    assert "left out: 1 thinking block (--thinking adds them)" in told
    assert "left out: system prompts" in told
    text, told = page(cli, tip.id, "--thinking", "--images")
    assert "pondering aloud" in text
    assert PIXEL in text
    assert "adds them" not in told
    assert "sealed" not in text
    refused = cli("sessions", "export", tip.id, "--thinking")
    assert refused.returncode == 2
    assert "Add --format html." in refused.stderr


def on_terminal(answer: str, *args: str, cwd: Path) -> tuple[int, str]:
    """Runs the command on a terminal, and answers its question."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "crushpy", *args], stdin=terminal, stdout=terminal, stderr=terminal, cwd=cwd
    )
    os.close(terminal)
    shown, answered_it = b"", False
    while True:
        try:
            chunk = os.read(controller, 4096)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
        if b"Write the page?" in shown and not answered_it:
            answered_it = True
            os.write(controller, answer.encode())
    os.close(controller)
    return process.wait(60), shown.decode()


def test_page_export_asks_on_a_terminal_before_writing(workspace: Path, fill: Fill) -> None:
    tip = fill(lambda store: converse(store, workspace))
    export = ("sessions", "export", tip.id, "--format", "html", "--output", "page.html")
    code, shown = on_terminal("n\n", *export, cwd=workspace)
    assert (code, "key or token, 1 in session" in shown) == (1, True)
    assert list(workspace.iterdir()) == []
    code, shown = on_terminal("y\n", *export, cwd=workspace)
    assert code == 0, shown
    assert [path.name for path in workspace.iterdir()] == ["page.html"]
    code, shown = on_terminal("", *export, "--force", "--yes", cwd=workspace)
    assert (code, "Write the page?" in shown) == (0, False)


def test_paths_of_the_project_are_relative_and_home_is_a_tilde(
    cli: Cli, workspace: Path, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")

    async def write(store: Store) -> SessionInfo:
        info = a_session("/home/ada/shop", title="in /home/ada/shop")
        await store.sessions.create(info, said("look at /home/ada/shop/src/a.py, not /home/ada/shop-old/b"))
        call = ToolCall(
            "c1", "bash", {"command": "cat /home/ada/.netrc /home/adam/x", "cwd": "/home/ada/shop"}
        )
        await store.messages.add(info.id, replied("", call))
        await store.messages.add(
            info.id, answered(call, "file:///home/ada/shop/c\n/home/ada/shop.\n/home/ada\n")
        )
        return info

    text, told = page(cli, fill(write).id)
    data = written(text)
    assert (data["title"], data["folder"]) == ("in .", "shop")
    prompt, reply, result = data["sessions"][0]["messages"]
    assert prompt["parts"][0]["nodes"] == [["p", "", "look at src/a.py, not ~/shop-old/b"]]
    assert reply["parts"][-1]["args"] == {"command": "cat ~/.netrc /home/adam/x", "cwd": "."}
    assert result["parts"][0]["text"] == "file://c\n..\n~\n"
    assert not re.findall(r"/home/ada\b", text)
    assert "paths are relative" in told


def test_calls_keep_how_they_ended_without_the_approval(cli: Cli, workspace: Path, fill: Fill) -> None:
    denied = CallDecision("denied", "user", 1.0, words=f"not with {KEY}")
    failed = ToolResult("", "bash", "said", is_error=True)
    endings = {
        "denied": msgspec.structs.replace(failed, decision=denied),
        "interrupted": msgspec.structs.replace(failed, ended="interrupted"),
        "not run": msgspec.structs.replace(failed, ended="not_run"),
        "failed": failed,
        "": ToolResult("", "bash", "said", decision=CallDecision("allowed", "user", 1.0)),
    }

    async def write(store: Store) -> SessionInfo:
        info = await begun(store, "t", "go", cwd=str(workspace))
        await store.messages.add(info.id, replied("", *(ToolCall(name, "bash", {}) for name in endings)))
        for name, result in endings.items():
            part = msgspec.structs.replace(result, call_id=name)
            await store.messages.add(info.id, Message(new_id(), "tool", (part,), time.time()))
        return info

    text, told = page(cli, fill(write).id)
    results = [message["parts"][0] for message in written(text)["sessions"][0]["messages"][2:]]
    assert [result["state"] for result in results] == list(endings)
    assert all("decision" not in result for result in results)
    assert "0 redactions." in told


def test_long_pasted_text_is_apart_from_the_words_around_it(cli: Cli, workspace: Path, fill: Fill) -> None:
    log = "\n".join(f"line {number} *" for number in range(20))
    prompt = f"Look:\n{log}\nwhy?"
    message = Message(new_id(), "user", (Text(prompt, ((6, 6 + len(log)),)),), time.time())
    info = a_session(str(workspace))
    fill(lambda store: store.sessions.create(info, message))
    first, pasted, last = written(page(cli, info.id)[0])["sessions"][0]["messages"][0]["parts"]
    assert (first["nodes"], last["nodes"]) == ([["p", "", "Look:"]], [["p", "", "why?"]])
    assert (pasted["text"], pasted["lines"]) == (log, 20)


# --- faults ------------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_no_file(workspace: Path, fill: Fill) -> None:
    info = fill(lambda store: begun(store, "t", "prompt " * 200_000, cwd=str(workspace)))
    (workspace / "before.html").write_text("as it was")
    for name, options in (("page.html", ()), ("before.html", ("--force",))):
        export = ("sessions", "export", info.id, "--format", "html", "--output", name, *options)
        done = subprocess.run(
            [sys.executable, "-m", "crushpy", *export],
            cwd=workspace,
            capture_output=True,
            text=True,
            timeout=60,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000)),
        )
        assert done.returncode == 2
        assert f"cannot write {name}: File too large" in done.stderr
    assert [path.name for path in workspace.iterdir()] == ["before.html"]
    assert (workspace / "before.html").read_text() == "as it was"


def test_branches_undone_sessions_and_tasks_are_in_the_tree(cli: Cli, workspace: Path, fill: Fill) -> None:
    async def write(store: Store) -> SessionInfo:
        root = await begun(store, "t", "one", "two", cwd=str(workspace))
        child = await continued(store, root, "s", "three", "four")
        await undo_compaction(store, child.id)
        fork = await fork_session(store, root)
        task = a_session(str(workspace), root_id=root.id, parent_id=root.id, kind="task", title="look it up")
        await store.sessions.create(task, said("look"))
        await store.messages.add(fork.info.id, said("in the fork"))
        return root

    root = fill(write)
    data = written(page(cli, root.id)[0])
    assert sorted(session["label"] for session in data["sessions"]) == ["", "fork", "task", "undone"]
    assert {session["under"] for session in data["sessions"][1:]} == {root.id}
    assert data["lineage"] == [0]


def test_a_damaged_conversation_is_exported_with_what_can_be_read(
    cli: Cli, workspace: Path, fill: Fill, home: Path
) -> None:
    async def write(store: Store) -> SessionInfo:
        root = await begun(store, "t", "first words", "an answer", "broken", cwd=str(workspace))
        child = await continued(store, root, "s", "three", "four")
        orphan = answered(ToolCall("gone", "bash", {}), "of a lost call")
        await store.messages.add(child.id, orphan)
        return await continued(store, child, "s2", "five", "six")

    tip = fill(write)
    with sqlite3.connect(home / "crushpy.db") as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("""UPDATE message SET parts = '[{"type":"text"' WHERE parts LIKE '%broken%'""")
        db.execute("UPDATE session SET parent_id = ? WHERE id = ?", (tip.id, tip.root_id))  # a circle
        db.execute("DELETE FROM boundary WHERE child_id = ?", (tip.id,))
    data = written(page(cli, tip.id)[0])
    texts = json.dumps(data)
    assert len(data["sessions"]) == 3
    assert "This message is damaged" in texts
    for words in ("first words", "of a lost call", "six"):
        assert words in texts


def test_an_empty_and_an_imported_conversation_make_pages(cli: Cli, workspace: Path, fill: Fill) -> None:
    empty, imported = a_session(str(workspace)), a_session(str(workspace), imported="codex", model="")
    fill(lambda store: store.sessions.create(empty))
    fill(lambda store: store.sessions.create(imported, said("from elsewhere")))
    assert written(page(cli, empty.id)[0])["sessions"][0]["messages"] == []
    assert written(page(cli, imported.id)[0])["imported"] == "codex"


@pytest.mark.nightly
def test_a_conversation_of_a_thousand_sessions_makes_one_page(cli: Cli, workspace: Path, fill: Fill) -> None:
    async def write(store: Store) -> SessionInfo:
        last = await begun(store, "t", "start", cwd=str(workspace))
        for number in range(999):
            last = await continued(store, last, f"summary {number}")
        return last

    tip = fill(write)
    data = written(page(cli, tip.id)[0])
    assert len(data["lineage"]) == len(data["sessions"]) == 1000
    assert data["sessions"][-1]["messages"][0]["parts"][0]["summary"] == [["p", "", "summary 998"]]


def test_the_page_in_the_docs_is_made_by_this_version() -> None:
    """If not: .venv/bin/python docs/pictures/make_page.py"""
    docs = Path(__file__).parents[2] / "docs"
    text = (docs / "demo-conversation.html").read_text()
    folder = files("crushpy.engine.session") / "page"
    style = "".join((folder / name).read_text() for name in ("page.css", "print.css"))
    script = "".join((folder / name).read_text() for name in ("search.js", "chart.js", "page.js"))
    assert f"<style>{style}</style>" in text and f"<script>{script}</script>" in text
    data = written(text)
    assert any("boundary" in session for session in data["sessions"])
