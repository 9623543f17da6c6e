"""`context.read_text`: a tool of a contributor reads files as `view` does, and fails with a sentence."""

import os
from pathlib import Path

import pytest
from filetools import call, lend, refused

from crushpy.core.access import ToolAccess
from crushpy.tools.base import Args, CallContext, Outcome, ReadingTool, Workspace
from crushpy.tools.files.locate import NamedPath
from crushpy.tools.files.text_file import MAX_FILE_BYTES
from crushpy.tools.files.workspace_files import WorkspaceFiles
from crushpy.tools.shell.jobs import Jobs


class JoinArgs(Args, frozen=True):
    file_path: str


class JoinTool(ReadingTool[JoinArgs]):
    name = "join"
    args = JoinArgs
    access = ToolAccess("path")

    async def run(self, args: JoinArgs, context: CallContext) -> Outcome:
        return Outcome("|".join((await context.read_text(args.file_path)).lines))


@pytest.mark.parametrize(
    "raw", [b"one\ntwo\n", b"one\r\ntwo\r\n", "\ufeffone\ntwo".encode("utf-16-le"), b"\xef\xbb\xbfone\ntwo"]
)
async def test_read_text_decodes_a_file_and_its_line_endings(workspace: Path, raw: bytes) -> None:
    (workspace / "a.txt").write_bytes(raw)
    assert (await call(JoinTool(), lend(workspace), file_path="a.txt")).text == "one|two"


def make_missing(path: Path) -> None:
    (path.parent / "nothing_else").touch()


def make_too_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)


FAILURES = {
    "missing": (make_missing, "sub/a.txt does not exist. grep without a path searches the whole project."),
    "folder": (Path.mkdir, "sub/a.txt is a folder, not a file."),
    "binary": (
        lambda path: path.write_bytes(b"\0\1\2"),
        "sub/a.txt is a binary file (3 bytes), not text. Use bash.",
    ),
    "too large": (
        make_too_large,
        "sub/a.txt is too large (50,000,001 bytes or more; the limit is 50,000,000).",
    ),
    "pipe": (os.mkfifo, "sub/a.txt is a pipe, not a file: it is not opened."),
    "broken link": (
        lambda path: path.symlink_to("gone"),
        "sub/a.txt is a link to gone, which does not exist.",
    ),
}


@pytest.mark.parametrize("kind", FAILURES)
async def test_read_text_explains_a_failure_in_a_sentence(workspace: Path, kind: str) -> None:
    make, sentence = FAILURES[kind]
    (workspace / "sub").mkdir()
    make(workspace / "sub" / "a.txt")
    for named in ("sub/a.txt", str(workspace / "sub" / "a.txt")):
        assert (await refused(JoinTool(), lend(workspace), file_path=named)).startswith(sentence)


class Buffers(WorkspaceFiles):
    """An editor that has the file open, with changes that are not saved."""

    def read(self, place: NamedPath) -> bytes:
        return super().read(place) + b"draft\n"


async def test_read_text_sees_what_an_editor_has_not_saved(workspace: Path) -> None:
    (workspace / "a.txt").write_text("saved\n")
    context = CallContext(Workspace(workspace, workspace.parent / "outputs", Jobs(), Buffers()))
    assert (await call(JoinTool(), context, file_path="a.txt")).text == "saved|draft"


async def test_read_text_opens_the_path_that_was_checked_when_a_link_takes_its_place(
    workspace: Path, tmp_path: Path
) -> None:
    secret, folder = tmp_path / "secret", workspace / "folder"
    secret.mkdir()
    folder.mkdir()
    (secret / "a.txt").write_text("secret\n")
    (folder / "a.txt").write_text("open\n")
    context, args = lend(workspace), JoinArgs("folder/a.txt")
    (access,) = JoinTool().accesses(args, context)
    folder.rename(workspace / "moved")
    folder.symlink_to(secret)
    with pytest.raises(Exception, match="became a link since it was checked"):
        await JoinTool().run(args, context)
    assert access.value == str(folder / "a.txt")
