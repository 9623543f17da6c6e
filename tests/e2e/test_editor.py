"""An editor that cannot be had, in a real terminal: the screen comes back and nothing is lost."""

from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_llm.server import ScriptedLLM
from support.e2e_terminal import Terminal

CTRL_G, CTRL_S, ESCAPE, F4 = "\x07", "\x13", "\x1b", "\x1bOS"
READY = "test-model"


def editor(folder: Path, kind: str) -> str:
    """The value of EDITOR for each way in which one can fail."""
    if kind == "missing":
        return "/nonexistent/ed"
    path = folder / "ed"
    path.write_text({"no program": "\x00\x01", "fails": "#!/bin/sh\nexit 3\n"}.get(kind, ""))
    path.chmod(0o600 if kind == "not executable" else 0o700)
    return str(path)


FAILURES = [
    ("missing", "started"),
    ("no program", "started"),
    ("not executable", "started"),
    ("fails", "failed"),
]
WAY_OUT = "EDITOR=nano"  # single words: a notice is broken into lines anywhere


@pytest.mark.parametrize(("kind", "said"), FAILURES)
def test_the_draft_stays_and_the_way_out_is_said(
    launch: Callable[..., Terminal], llm: ScriptedLLM, tmp_path: Path, kind: str, said: str
) -> None:
    llm.script("I got it.")
    with launch(env={"EDITOR": editor(tmp_path, kind), "VISUAL": ""}) as terminal:
        terminal.wait_for(READY)
        terminal.press("my draft")
        terminal.wait_for("my draft")
        terminal.press(CTRL_G)
        terminal.wait_for(said, WAY_OUT, READY, "my draft")
        terminal.press(" goes on")
        terminal.wait_for("my draft goes on")
        terminal.press("\r")
        terminal.wait_for("I got it.")
    assert llm.requests[0].body["messages"][-1]["content"] == "my draft goes on"


def test_the_template_being_edited_stays_too(
    launch: Callable[..., Terminal], home: Path, tmp_path: Path
) -> None:
    with launch(env={"EDITOR": editor(tmp_path, "missing"), "VISUAL": ""}) as terminal:
        terminal.wait_for(READY)
        terminal.type_line("/template")
        terminal.wait_for("You write the notes")
        terminal.press("ZEBRA ")
        terminal.wait_for("ZEBRA")
        terminal.press(F4)
        terminal.wait_for("started", WAY_OUT, "ZEBRA")
        terminal.press("AND ")
        terminal.wait_for("ZEBRA AND")
        terminal.press(CTRL_S)
        terminal.wait_for("Saved as")
        terminal.press(ESCAPE)
        terminal.wait_gone("ZEBRA")
    assert "ZEBRA AND" in (home / "templates" / "summary.md").read_text()
