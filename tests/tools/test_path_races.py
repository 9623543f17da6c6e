"""What was judged is what is touched, while folders and files are swapped for links in between."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from support.folder_swapper import swapping
from support.headless import Run

pytestmark = pytest.mark.slow

ROUNDS, CALLS = 10, 20
SECRET = "from outside"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    for name in ("known.txt", "deep/known.txt"):
        (folder / name).write_text(f"{SECRET}\n")
    return folder


@pytest.fixture
def inside(workspace: Path) -> Path:
    folder = workspace / "d"
    (folder / "deep").mkdir(parents=True)
    for name in ("known.txt", "deep/known.txt"):
        (folder / name).write_text("inside\n")
    return folder


def held(folder: Path) -> dict[str, str]:
    """All that is in a folder, so that a new or changed file shows."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def script(llm: ScriptedLLM, calls: list[Call]) -> None:
    replies = [Reply(calls=calls[start : start + CALLS]) for start in range(0, len(calls), CALLS)]
    llm.script(*replies, "Done.")


def test_write_stays_inside_while_its_folder_is_swapped(
    run: Run, llm: ScriptedLLM, inside: Path, outside: Path
) -> None:
    before = held(outside)
    script(
        llm,
        [
            Call("write", {"file_path": f"d/{'new/' * (n % 2)}{n}.txt", "content": "written\n"})
            for n in range(ROUNDS * CALLS)
        ],
    )
    with swapping(inside, outside):
        done = run("--allow", "write(./d/**)", "write")
    assert held(outside) == before
    assert len(done.of("tool_result")) == ROUNDS * CALLS
    assert any(text == "written\n" for text in held(inside).values()), "nothing was written at all"
    assert not [name for name in os.listdir(inside) if name.endswith(".tmp")]


def test_edit_stays_inside_while_its_folder_is_swapped(
    run: Run, llm: ScriptedLLM, inside: Path, outside: Path
) -> None:
    before = held(outside)
    calls = [
        Call(*each)
        for n in range(ROUNDS * CALLS // 5)
        for each in (
            ("view", {"file_path": "d/known.txt"}),
            ("edit", {"file_path": "d/known.txt", "old_string": "inside", "new_string": "inside inside"}),
            ("view", {"file_path": "d/deep/known.txt"}),
            ("grep", {"pattern": "o", "path": "d/known.txt" if n % 2 else "d"}),
            ("ls", {"path": "d"}),
        )
    ]
    (outside / "only-outside.txt").write_text("x")
    before = held(outside)
    script(llm, calls)
    with swapping(inside, outside):
        done = run("--allow", "write(./d/**)", "read and edit")
    assert held(outside) == before
    said = json.dumps([line["text"] for line in done.of("tool_result")])
    assert "inside" in said
    assert SECRET not in said and "only-outside" not in said


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("sandbox", ["on", "off"])
def test_search_stays_inside_while_its_folder_is_swapped(
    run: Run, llm: ScriptedLLM, inside: Path, outside: Path, sandbox: str
) -> None:
    (outside / "only-outside.txt").write_text("x")
    calls = [
        Call(*each)
        for _ in range(2 * CALLS)
        for each in (
            ("grep", {"pattern": "from|inside", "path": "."}),
            ("glob", {"pattern": "**/*.txt", "path": "."}),
        )
    ]
    script(llm, calls)
    with swapping(inside, outside):
        done = run("search", env={"CRUSHPY_SANDBOX__MODE": sandbox})
    said = json.dumps([line["text"] for line in done.of("tool_result")])
    assert "d/known.txt" in said and "inside" in said
    assert SECRET not in said and "only-outside" not in said


@pytest.mark.parametrize("spelled", ["/proc/self/root{}", "/proc/self/cwd/../outside/known.txt"])
def test_spellings_through_proc_are_judged_as_what_they_are(
    run: Run, llm: ScriptedLLM, workspace: Path, outside: Path, spelled: str
) -> None:
    path = spelled.format(outside / "known.txt")
    before = held(outside)
    llm.script(
        Reply(calls=[Call("view", {"file_path": path}), Call("write", {"file_path": path, "content": "x"})]),
        "Done.",
    )
    done = run("--allow", "write(./**)", "--allow", "view(./**)", "try")
    assert done.code == 3
    assert all("Permission needed" in line["text"] for line in done.of("tool_result")), done.of("tool_result")
    assert held(outside) == before


def test_the_folder_of_another_process_is_judged_as_what_it_is(
    run: Run, llm: ScriptedLLM, workspace: Path, outside: Path
) -> None:
    before = held(outside)
    pid = os.getpid()
    here = Path.cwd()
    relative = os.path.relpath(outside / "known.txt", here)
    path = f"/proc/{pid}/cwd/{relative}"
    llm.script(Reply(calls=[Call("write", {"file_path": path, "content": "x"})]), "Done.")
    assert run("--allow", "write(./**)", "try").code == 3
    assert held(outside) == before


def test_a_hard_link_is_replaced_and_what_it_shared_stays(
    run: Run, llm: ScriptedLLM, workspace: Path, outside: Path
) -> None:
    (workspace / "linked.txt").hardlink_to(outside / "known.txt")
    before = held(outside)
    edit = {"file_path": "linked.txt", "old_string": SECRET, "new_string": "changed"}
    llm.script(
        Reply(calls=[Call("view", {"file_path": "linked.txt"}), Call("edit", edit)]),
        "Done.",
    )
    done = run("--allow", "write(./**)", "edit")
    assert done.code == 0
    assert (workspace / "linked.txt").read_text() == "changed\n"
    assert held(outside) == before


# --- links that people have ------------------------------------------------------------------------------


def test_links_within_the_workspace_and_a_workspace_behind_a_link_keep_working(
    run: Run, llm: ScriptedLLM, workspace: Path, inside: Path, tmp_path: Path
) -> None:
    (workspace / "link").symlink_to("d")
    (workspace / "file-link").symlink_to("d/known.txt")
    (tmp_path / "other-name").symlink_to(workspace)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("view", {"file_path": "link/known.txt"}),
        ("edit", {"file_path": "file-link", "old_string": "inside", "new_string": "changed"}),
        ("write", {"file_path": "link/new/a.txt", "content": "new\n"}),
        ("ls", {"path": "link"}),
        ("glob", {"pattern": "**/*.txt", "path": "link"}),
        ("grep", {"pattern": "changed", "path": "link"}),
        ("grep", {"pattern": "changed", "path": "file-link"}),
    ]
    llm.script(Reply(calls=[Call(*each) for each in calls]), "Done.")
    done = run("--cwd", str(tmp_path / "other-name"), "--allow", "write(./**)", "work")
    results = done.of("tool_result")
    assert [line["is_error"] for line in results] == [False] * len(calls), results
    assert held(inside) == {
        "known.txt": "changed\n",
        "deep/known.txt": "inside\n",
        "new/a.txt": "new\n",
    }
    assert (workspace / "file-link").is_symlink()
    said = "\n".join(line["text"] for line in results)
    assert "\nlink/new/a.txt" in said and "link/known.txt\n  1: changed" in said
    assert "file-link\n  1: changed" in said
