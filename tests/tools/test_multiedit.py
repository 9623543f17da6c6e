"""Several edits in one file: in order, all or none."""

from pathlib import Path

import pytest
from filetools import call, knows, lend, names, refused

from crushpy.core.access import Access
from crushpy.core.messages import Diff
from crushpy.tools.base import CallContext
from crushpy.tools.edit import MultiEditTool
from crushpy.tools.errors import DoesNotFit
from crushpy.tools.registry import check_args


@pytest.fixture
def context(workspace: Path) -> CallContext:
    context = lend(workspace)
    (workspace / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    knows(context, workspace / "a")
    return context


def edit(old: str, new: str, **more: object) -> dict[str, object]:
    return {"old_string": old, "new_string": new, **more}


async def test_each_edit_works_on_the_result_of_those_before(context: CallContext) -> None:
    edits = [edit("one\ntwo", "1\n2"), edit("2\nthree", "23"), edit("1", "x")]
    outcome = await call(MultiEditTool(), context, file_path="a", edits=edits)
    assert (context.workspace.cwd / "a").read_bytes() == b"x\r\n23\r\n"
    assert outcome.text == "Edited a: 3 edits made (+2 -3).\n1\tx\n2\t23"
    assert isinstance(outcome.display, Diff)
    assert (outcome.display.added, outcome.display.removed) == (2, 3)


async def test_multiedit_makes_no_edit_when_one_fails(context: CallContext) -> None:
    edits = [edit("one", "1"), edit("nowhere to be found", "2")]
    error = await refused(MultiEditTool(), context, file_path="a", edits=edits)
    assert error.startswith("Edit 2 of 2 cannot be made, so none was. a: old_string was not found.")
    assert (context.workspace.cwd / "a").read_bytes() == b"one\r\ntwo\r\nthree\r\n"
    assert names(context.workspace.cwd) == ["a"]


async def test_notes_name_the_edit_they_are_about(context: CallContext) -> None:
    edits = [edit("e", "E", replace_all=True), edit("two  \n", "2\n")]
    outcome = await call(MultiEditTool(), context, file_path="a", edits=edits)
    assert "Note: edit 1 was replaced in 3 places." in outcome.text
    assert "Note: edit 2 was found at line 2 with other white space than written" in outcome.text


async def test_a_new_file_can_be_made_and_changed_at_once(context: CallContext) -> None:
    edits = [edit("", "hello world\n"), edit("world", "there")]
    outcome = await call(MultiEditTool(), context, file_path="new", edits=edits)
    assert (context.workspace.cwd / "new").read_text() == "hello there\n"
    assert outcome.text.startswith("Created new: 2 edits made (+1 -0).")


async def test_a_missing_file_is_not_made_by_an_ordinary_edit(context: CallContext) -> None:
    assert "b does not exist" in await refused(
        MultiEditTool(), context, file_path="b", edits=[edit("x", "y")]
    )
    assert names(context.workspace.cwd) == ["a"]


async def test_multiedit_refuses_empty_and_cancelling_edits(context: CallContext) -> None:
    assert "edits is empty" in await refused(MultiEditTool(), context, file_path="a", edits=[])
    edits = [edit("one", "1"), edit("1", "one")]
    assert "nothing would change" in await refused(MultiEditTool(), context, file_path="a", edits=edits)


async def test_a_file_that_was_not_read_is_refused(context: CallContext) -> None:
    (context.workspace.cwd / "b").write_text("one\n")
    assert "view it first" in await refused(MultiEditTool(), context, file_path="b", edits=[edit("one", "1")])


async def test_an_unknown_field_is_refused_with_what_it_takes(context: CallContext) -> None:
    error = await refused(MultiEditTool(), context, file_path="a", edits=[{"old": "one", "new": "1"}])
    assert "file_path, edits" in error


async def test_the_preview_is_the_diff_that_will_happen(context: CallContext) -> None:
    args = {"file_path": "a", "edits": [edit("one", "1"), edit("two", "2")]}
    preview = await MultiEditTool().preview(check_args(MultiEditTool(), args), context)
    assert preview is not None and preview.added == 2
    assert (await call(MultiEditTool(), context, **args)).display == preview
    with pytest.raises(DoesNotFit, match="Edit 1 of 2"):
        await MultiEditTool().preview(check_args(MultiEditTool(), args), context)


def test_multiedit_accesses_the_real_file_for_writing(context: CallContext) -> None:
    accesses = MultiEditTool().accesses(MultiEditTool.args("a", []), context)
    assert accesses == (
        Access("multiedit", "path", str((context.workspace.cwd / "a").resolve()), writes=True),
    )
