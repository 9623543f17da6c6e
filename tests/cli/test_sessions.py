"""`crushpy sessions`, as a person uses it: the real command on a store that was really written."""

import asyncio
import json
import os
import pty
import re
import select
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from support.command import Cli
from support.stored import a_session, answered, replied, said

from crushpy.core.boundary import StoredBoundary
from crushpy.core.messages import Image, Message, Seed, Text, Thinking, ToolCall, ToolResult, Usage
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store

EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[31mred \u202eexe"
KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
LS = ToolCall("call_1", "bash", {"command": "ls -la\nsecond line", "password": "opensesame"})

Filled = Callable[[Callable[[Store], Awaitable[None]]], None]


@pytest.fixture
def fill(home: Path) -> Filled:
    """Writes to the database that the command will read."""

    def run(write: Callable[[Store], Awaitable[None]]) -> None:
        async def all_of_it() -> None:
            store = Store(home / "crushpy.db")
            await write(store)
            await store.close()

        asyncio.run(all_of_it())

    return run


@pytest.fixture
def told(workspace: Path, fill: Filled) -> SessionInfo:
    """One conversation of this folder with everything in it."""
    info = a_session(str(workspace), id="abcd1234", title=f"fix {EVIL} it", system="You are crushpy.")

    async def write(store: Store) -> None:
        await store.sessions.create(info, said(f"please use {KEY}"))
        thinking = Thinking("let me see", ({"signature": "xyz"},))
        reply = replied("I look.", LS, usage=Usage(1000, 20, 30, 0, 0.0125))
        await store.messages.add(info.id, msgspec.structs.replace(reply, parts=(thinking, *reply.parts)))
        await store.calls.begin(info.id, reply.id, LS)
        await store.calls.finish(info.id, answered(LS, f"one {EVIL}\n```\ntoken=abc123def456\n```\nlast"))
        failed = ToolCall("call_2", "view", {"file_path": "gone.py"})
        await store.messages.add(info.id, replied("And that.", failed))
        image = Image("image/png", "aGVsbG8=")
        result = ToolResult("call_2", "view", "no such file", True, (image,))
        await store.calls.finish(info.id, Message("m_image", "tool", (result,), time.time()))
        await store.messages.add(info.id, replied(f"Done {EVIL}."))

    fill(write)
    return info


# --- list --------------------------------------------------------------------------------------------------


def test_a_new_home_has_no_conversations(cli: Cli, workspace: Path) -> None:
    done = cli("sessions", "list")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"There are no conversations of {workspace} yet" in done.stderr
    assert json.loads(cli("sessions", "list", "--json").stdout) == []
    assert cli("sessions", "list", "--all").stderr == "There are no conversations yet.\n"


def test_a_listing_has_a_row_for_each_conversation_of_this_folder(
    cli: Cli, told: SessionInfo, fill: Filled
) -> None:
    other = a_session("/elsewhere", title="other", now=time.time() - 90_000)
    fill(lambda store: store.sessions.create(other))
    head, row = cli("sessions", "list").stdout.splitlines()
    assert head.split() == ["ID", "AGE", "MODEL", "MESSAGES", "TITLE"]
    assert row.split(maxsplit=4) == [told.id, "now", "openai/one", "6", "fix red <U+202E>exe it"]

    head, *rows = cli("sessions", "list", "--all").stdout.splitlines()
    assert "FOLDER" in head
    assert [row.split()[0] for row in rows] == [told.id, other.id]
    assert [rows[1].split()[1], rows[1].split()[4]] == ["1d", "/elsewhere"]

    limited = cli("sessions", "list", "--all", "--limit", "1")
    assert [row.split()[0] for row in limited.stdout.splitlines()[1:]] == [told.id]
    assert "--limit" in limited.stderr

    (data,) = json.loads(cli("sessions", "list", "--json").stdout)
    assert data["id"] == told.id
    assert data["title"] == told.title
    assert data["message_count"] == 6
    assert data["usage"]["cost"] == 0.0125
    assert "system" not in data


def test_a_continued_conversation_is_one_row_with_all_its_messages(
    cli: Cli, workspace: Path, fill: Filled
) -> None:
    root, child, boundary = crossed(workspace)

    async def write(store: Store) -> None:
        await store.sessions.create(root, said("first"))
        await store.boundaries.add(
            boundary, child, Message("seed", "user", (Seed("the summary", "the facts"),))
        )

    fill(write)
    (data,) = json.loads(cli("sessions", "list", "--json").stdout)
    assert (data["id"], data["root_id"], data["message_count"]) == (child.id, root.id, 2)


def crossed(workspace: Path) -> tuple[SessionInfo, SessionInfo, StoredBoundary]:
    now = time.time()
    root = a_session(str(workspace), id="aaaa", now=now - 10)
    child = a_session(
        str(workspace),
        id="bbbb",
        root_id="aaaa",
        parent_id="aaaa",
        kind="continuation",
        generation=1,
        now=now + 60,
    )
    return root, child, StoredBoundary("b1", root.id, child.id, "manual", created_at=now + 60)


def test_values_of_a_newer_version_are_shown_as_they_are(
    cli: Cli, fill: Filled, workspace: Path, home: Path
) -> None:
    root, child, boundary = crossed(workspace)

    async def write(store: Store) -> None:
        await store.sessions.create(root, said("go"))
        await store.boundaries.add(boundary, child, said("seed"))

    fill(write)
    with closing(sqlite3.connect(home / "crushpy.db")) as connection:
        connection.execute("UPDATE boundary SET trigger = 'teleport', summary_source = 'oracle'")
        connection.execute("UPDATE session SET end_reason = 'teleport' WHERE id = 'aaaa'")
        connection.execute("UPDATE session SET kind = 'clone' WHERE id = 'bbbb'")
        connection.commit()
    done = cli("sessions", "show", "bbbb", "--json")
    assert done.stderr == ""
    made = json.loads(done.stdout)
    assert (made["kind"], made["boundary"]["trigger"]) == ("clone", "teleport")
    assert made["boundary"]["summary_source"] == "oracle"
    assert "(teleport)" in cli("sessions", "show", "aaaa").stdout
    assert "teleport: unknown tokens" in cli("sessions", "tree", "bbbb").stdout
    for form in ("markdown", "json", "html"):
        assert cli("sessions", "export", "bbbb", "--format", form).returncode == 0


# --- show --------------------------------------------------------------------------------------------------


def test_show_prints_the_head_and_the_messages_with_a_line_for_each_call(cli: Cli, told: SessionInfo) -> None:
    done = cli("sessions", "show", "abcd")
    assert done.stderr == ""
    text = done.stdout
    for expected in (
        "session   abcd1234",
        "title     fix red <U+202E>exe it",
        "tokens    1,030 in, 20 out; $0.0125",
        "please use [redacted]",
        "--- assistant (openai/one)",
        "I look.\n  > bash ls -la\n",
        "  < one red <U+202E>exe (+4 lines)",
        "  > view gone.py\n",
        "  < error: no such file",
        "Done red <U+202E>exe.",
    ):
        assert expected in text
    assert not set("\x1b\x07\u202e") & set(text)
    assert "second line" not in text


def test_show_json_has_every_message_as_stored(cli: Cli, told: SessionInfo) -> None:
    data = json.loads(cli("sessions", "show", "latest", "--json", "--no-redact").stdout)
    assert data["id"] == told.id
    assert data["system"] == told.system
    messages = msgspec.convert(data["messages"], list[Message])
    assert [message.role for message in messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert messages[1].calls == (LS,)
    assert messages[-1].parts == (Text(f"Done {EVIL}."),)


@pytest.mark.parametrize("command", ["show", "export", "delete"])
def test_an_unknown_session_is_an_error_that_names_it(cli: Cli, told: SessionInfo, command: str) -> None:
    done = cli("sessions", command, "zzz")
    assert done.returncode == 2
    assert "there is no session 'zzz'" in done.stderr
    assert "sessions list --all" in done.stderr
    assert "Traceback" not in done.stderr


def test_latest_needs_a_conversation_of_this_folder(cli: Cli, told: SessionInfo, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    done = cli("sessions", "show", "latest", cwd=other)
    assert done.returncode == 2
    assert f"there is no conversation of {other} yet" in done.stderr


def test_a_folder_that_is_gone_is_said_plainly(cli: Cli, told: SessionInfo, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", f'rmdir "{gone}" && exec "{sys.executable}" -m crushpy sessions list'],
        cwd=gone,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 2
    assert "The current folder no longer exists" in done.stderr


# --- export ------------------------------------------------------------------------------------------------


def test_export_writes_everything_as_markdown_without_secrets(cli: Cli, told: SessionInfo) -> None:
    text = cli("sessions", "export", told.id).stdout
    for expected in (
        "# fix red <U+202E>exe it\n",
        f"- session: {told.id}\n",
        "## User\n\nplease use [redacted]\n",
        "<details><summary>Thinking</summary>\n\nlet me see\n\n</details>",
        '### Call: bash\n\n```json\n{"command":"ls -la\\nsecond line","password":"[redacted]"}\n```\n',
        "### Result: bash\n\n````text\none red <U+202E>exe\n```\ntoken=[redacted]\n```\nlast\n````\n",
        "### Result: view (error)\n\n```text\nno such file\n```\n\n[image: image/png, 5 bytes]\n",
        "## Assistant (openai/one)\n\nDone red <U+202E>exe.\n",
    ):
        assert expected in text
    for secret in (KEY, "opensesame", "abc123def456", "\x1b"):
        assert secret not in text


def test_export_can_keep_secrets(cli: Cli, told: SessionInfo) -> None:
    text = cli("sessions", "export", told.id, "--no-redact").stdout
    assert KEY in text
    assert "opensesame" in text
    assert "[redacted]" not in text


def test_export_as_json_is_whole_and_redacted(cli: Cli, told: SessionInfo) -> None:
    data = json.loads(cli("sessions", "export", told.id, "--format", "json").stdout)
    assert data["redacted"] is True
    (session,) = data["sessions"]
    messages = msgspec.convert(session["messages"], list[Message])
    assert messages[0].text == "please use [redacted]"
    assert messages[1].calls[0].args["password"] == "[redacted]"
    assert messages[1].parts[0] == Thinking("let me see", ({"signature": "xyz"},))
    plain = json.loads(cli("sessions", "export", told.id, "--format", "json", "--no-redact").stdout)
    assert plain["sessions"][0]["messages"][0]["parts"][0]["text"] == f"please use {KEY}"


def test_export_writes_to_a_file(cli: Cli, told: SessionInfo, workspace: Path) -> None:
    done = cli("sessions", "export", told.id, "--output", "out.md")
    assert done.stdout == "6 messages are in out.md\n"
    assert (workspace / "out.md").read_text().startswith("# fix red")
    failed = cli("sessions", "export", told.id, "--output", "no/such/out.md")
    assert failed.returncode == 2
    assert "cannot write no/such/out.md: No such file or directory" in failed.stderr


def test_export_replaces_nothing_unless_told_to_and_follows_no_link(
    cli: Cli, told: SessionInfo, workspace: Path
) -> None:
    (workspace / "mine.md").write_text("mine")
    (workspace / "link.md").symlink_to("mine.md")
    (workspace / "nowhere.md").symlink_to("not/there")
    for name, what in (("mine.md", "exists"), ("link.md", "is a link"), ("nowhere.md", "is a link")):
        done = cli("sessions", "export", told.id, "--output", name)
        assert done.returncode == 2
        assert f"{name} {what}" in done.stderr
        assert "--force" in done.stderr
    assert (workspace / "mine.md").read_text() == "mine"
    assert cli("sessions", "export", told.id, "--output", "link.md", "--force").returncode == 0
    assert not (workspace / "link.md").is_symlink()
    assert (workspace / "mine.md").read_text() == "mine"
    assert cli("sessions", "export", told.id, "--output", "mine.md", "--force").returncode == 0
    for name in ("link.md", "mine.md"):
        assert (workspace / name).read_text().startswith("# fix red")
        assert (workspace / name).stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in workspace.iterdir()) == ["link.md", "mine.md", "nowhere.md"]


def test_show_redacts_unless_told_not_to(cli: Cli, told: SessionInfo) -> None:
    for options in ((), ("--json",)):
        shown = cli("sessions", "show", told.id, *options).stdout
        assert KEY not in shown
        assert "opensesame" not in shown
        assert KEY in cli("sessions", "show", told.id, *options, "--no-redact").stdout


def test_a_folder_with_escape_sequences_in_its_name_is_told_without_them(cli: Cli, workspace: Path) -> None:
    folder = workspace / "evil\x1b]52;c;ZXZpbA==\x07name"
    folder.mkdir()
    done = cli("sessions", "list", cwd=folder)
    assert "name" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "\x07" not in done.stdout + done.stderr


def test_export_of_a_continuation_starts_with_what_it_continues(
    cli: Cli, workspace: Path, fill: Filled
) -> None:
    root, child, boundary = crossed(workspace)

    async def write(store: Store) -> None:
        await store.sessions.create(root, said("the very first"))
        await store.boundaries.add(
            boundary, child, Message("seed", "user", (Seed("the summary", "the facts"),))
        )
        await store.messages.add(child.id, replied("going on"))

    fill(write)
    text = cli("sessions", "export", "latest").stdout
    places = [text.index(words) for words in ("the very first", "the summary", "the facts", "going on")]
    assert places == sorted(places)


def test_an_export_holds_every_message_of_long_sessions_once_and_in_order(
    cli: Cli, workspace: Path, fill: Filled
) -> None:
    root, child, boundary = crossed(workspace)
    words = [f"word {number:03}." for number in range(130)]

    async def write(store: Store) -> None:
        await store.sessions.create(root, said(words[0]))
        for word in words[1:70]:
            await store.messages.add(root.id, replied(word))
        await store.boundaries.add(boundary, child, Message("seed", "user", (Seed("the summary", "facts"),)))
        for word in words[70:]:
            await store.messages.add(child.id, replied(word))

    fill(write)
    done = cli("sessions", "export", "latest", "--output", "out.md")
    assert done.stdout == "131 messages are in out.md\n"
    text = (workspace / "out.md").read_text()
    assert text == cli("sessions", "export", "latest").stdout
    assert re.findall(r"word \d+\.", text) == words
    whole = cli("sessions", "export", "latest", "--format", "json").stdout
    data = json.loads(whole)
    assert whole == json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    assert [session["id"] for session in data["sessions"]] == [root.id, child.id]
    said_first, said_then = ([m["parts"][0] for m in session["messages"]] for session in data["sessions"])
    assert [part["text"] for part in said_first] == words[:70]
    assert [part.get("text") for part in said_then] == [None, *words[70:]]
    assert data["conversation"] == root.root_id


# --- delete ------------------------------------------------------------------------------------------------


def test_delete_without_a_terminal_needs_a_yes(cli: Cli, told: SessionInfo) -> None:
    done = cli("sessions", "delete", told.id)
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert told.id in cli("sessions", "list").stdout


def test_delete_takes_the_whole_conversation_and_says_so(
    cli: Cli, home: Path, workspace: Path, told: SessionInfo, fill: Filled
) -> None:
    root, child, boundary = crossed(workspace)

    async def write(store: Store) -> None:
        await store.sessions.create(root, said("one"))
        await store.boundaries.add(boundary, child, said("two"))

    fill(write)
    for session in (root, told):
        (home / "outputs" / session.id).mkdir(parents=True)
        (home / "outputs" / session.id / "output.txt").write_text("long")
    done = cli("sessions", "delete", child.id, "--yes")
    assert done.stdout == 'Deleted conversation aaaa "fix the test" (2 sessions, 2 messages).\n'
    rows = json.loads(cli("sessions", "list", "--json").stdout)
    assert [row["id"] for row in rows] == [told.id]
    assert [folder.name for folder in (home / "outputs").iterdir()] == [told.id]


def test_a_conversation_that_another_process_works_on_is_not_deleted(
    cli: Cli, home: Path, told: SessionInfo
) -> None:
    code = (
        "import asyncio, sys; from pathlib import Path; from crushpy.storage.store import Store\n"
        "async def main():\n"
        "    store = Store(Path(sys.argv[1])); await store.leases.acquire(sys.argv[2])\n"
        "    print('taken', flush=True); sys.stdin.read(); await store.close()\n"
        "asyncio.run(main())"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(home / "crushpy.db"), told.id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "taken\n"
    done = cli("sessions", "delete", told.id, "--yes")
    assert done.returncode == 2
    assert f"process {holder.pid}" in done.stderr
    holder.communicate()
    assert cli("sessions", "delete", told.id, "--yes").returncode == 0


@pytest.mark.parametrize(("answer", "deleted"), [("n", False), ("y", True)])
def test_delete_asks_on_a_terminal(cli: Cli, told: SessionInfo, answer: str, deleted: bool) -> None:
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "crushpy", "sessions", "delete", told.id],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "COLUMNS": "200"},
    )
    os.close(terminal)
    shown = read_until(screen, b"?")
    assert b"Delete conversation abcd1234" in shown
    assert b"\x1b]52" not in shown
    os.write(screen, answer.encode() + b"\n")
    assert process.wait(30) == (0 if deleted else 1)
    os.close(screen)
    assert (told.id in cli("sessions", "list").stdout) is not deleted


def read_until(screen: int, mark: bytes) -> bytes:
    shown = b""
    deadline = time.monotonic() + 30
    while mark not in shown and time.monotonic() < deadline:
        if select.select([screen], [], [], 1)[0]:
            shown += os.read(screen, 4096)
    return shown


# --- faults ------------------------------------------------------------------------------------------------


def test_a_broken_database_is_told_and_kept(cli: Cli, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "crushpy.db").write_text("no database at all " * 100)
    done = cli("sessions", "list")
    assert done.returncode == 0
    assert "crushpy.db.corrupt-" in done.stderr
    assert len(list(home.glob("crushpy.db.corrupt-*"))) == 1


def test_an_unusable_database_is_an_error_not_a_traceback(cli: Cli, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "crushpy.db").mkdir()
    done = cli("sessions", "list")
    assert done.returncode == 1
    assert f"cannot use the database {home / 'crushpy.db'}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("sessions", "list"), ("config", "set", "model", "x/y")])
def test_a_home_that_cannot_be_written_is_an_error_not_a_traceback(
    cli: Cli, command: tuple[str, ...]
) -> None:
    done = cli(*command, env={"CRUSHPY_HOME": "/proc/crushpy"})
    assert done.returncode in (1, 2) and "/proc/crushpy" in done.stderr
    assert "set CRUSHPY_HOME to another folder" in done.stderr and "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error(cli: Cli, told: SessionInfo, fill: Filled) -> None:
    fill(lambda store: store.messages.add(told.id, said("x" * 500_000)))
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m crushpy sessions show {told.id} | head -1; exit 0'],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == f"session   {told.id}\n"
    assert done.stderr == ""


def test_wait_takes_all_messages_into_the_index_before_it_searches(cli: Cli, fill: Filled) -> None:
    info = a_session("/elsewhere")

    async def write(store: Store) -> None:
        await store.sessions.create(info, said("the first one"))
        for number in range(120):
            await store.messages.add(info.id, said(f"walrus {number}"))

    fill(write)
    found = cli("sessions", "search", "--all", "--wait", "--json", "walrus")
    assert len(json.loads(found.stdout)) == 120
    assert found.stderr == ""
