"""Reading files: what the model sees of text in any form, of images, and of things that are neither."""

import os
import socket
from pathlib import Path

import pytest
from filetools import call, lend, refused
from support.pictures import picture

from crushpy.core.access import Access
from crushpy.core.messages import Excerpt
from crushpy.llm.tokens import OPENAI
from crushpy.tools.base import CallingAgent
from crushpy.tools.truncate import MAX_RESULT_CHARS
from crushpy.tools.view import ViewTool

# --- lines -------------------------------------------------------------------------------------------------


async def test_lines_come_with_their_numbers(workspace: Path) -> None:
    (workspace / "a.py").write_text("one\n\n  three\n")
    outcome = await call(ViewTool(), lend(workspace), file_path="a.py")
    assert outcome.text == "1\tone\n2\t\n3\t  three"
    assert outcome.display == Excerpt("a.py", "one\n\n  three", "py")


async def test_a_last_line_without_newline_is_shown_like_any_other(workspace: Path) -> None:
    (workspace / "a").write_text("one\ntwo")
    assert (await call(ViewTool(), lend(workspace), file_path="a")).text == "1\tone\n2\ttwo"


async def test_a_range_is_shown_and_says_how_to_read_on(workspace: Path) -> None:
    (workspace / "a").write_text("".join(f"line {n}\n" for n in range(1, 21)))
    outcome = await call(ViewTool(), lend(workspace), file_path="a", offset=9, limit=3)
    assert outcome.text == " 9\tline 9\n10\tline 10\n11\tline 11\n[lines 9-11 of 20; read on with offset=12]"
    rest = await call(ViewTool(), lend(workspace), file_path="a", offset=19)
    assert rest.text == "19\tline 19\n20\tline 20"


async def test_an_offset_beyond_the_end_says_how_many_lines_there_are(workspace: Path) -> None:
    (workspace / "a").write_text("one\ntwo\n")
    assert "has 2 lines" in await refused(ViewTool(), lend(workspace), file_path="a", offset=3)


@pytest.mark.parametrize("bad", [{"offset": -1}, {"limit": 0}])
async def test_a_range_that_makes_no_sense_is_refused(workspace: Path, bad: dict[str, int]) -> None:
    (workspace / "a").write_text("one\n")
    assert "counted from 1" in await refused(ViewTool(), lend(workspace), file_path="a", **bad)


async def test_an_offset_of_zero_means_the_beginning(workspace: Path) -> None:
    (workspace / "a").write_text("one\n")
    assert (await call(ViewTool(), lend(workspace), file_path="a", offset=0)).text == "1\tone"


async def test_view_shows_2000_lines_by_default(workspace: Path) -> None:
    (workspace / "a").write_text("x\n" * 2500)
    outcome = await call(ViewTool(), lend(workspace), file_path="a")
    assert outcome.text.endswith("2000\tx\n[lines 1-2,000 of 2,500; read on with offset=2001]")
    assert (await call(ViewTool(), lend(workspace), file_path="a", limit=2500)).text.endswith("2500\tx")


async def test_a_long_line_is_cut_and_says_so(workspace: Path) -> None:
    (workspace / "a").write_text("x" * 5000 + "\nshort\n")
    outcome = await call(ViewTool(), lend(workspace), file_path="a")
    assert outcome.text == "1\t" + "x" * 2000 + " [... 3,000 characters truncated ...]\n2\tshort"


async def test_a_10_mb_file_is_read_in_bounded_pieces_that_join(workspace: Path) -> None:
    (workspace / "big").write_text("".join(f"{n:>99}\n" for n in range(100_000)))
    context = lend(workspace)
    first = await call(ViewTool(), context, file_path="big")
    assert MAX_RESULT_CHARS * 0.9 < len(first.text) <= MAX_RESULT_CHARS
    note = first.text.splitlines()[-1]
    assert "of 100,000; read on with offset=" in note
    offset = int(note.rsplit("=", 1)[1].rstrip("]"))
    second = await call(ViewTool(), context, file_path="big", offset=offset, limit=1)
    assert second.text.splitlines()[0].split() == [str(offset), str(offset - 1)]


async def test_an_empty_file_is_said_to_be_empty(workspace: Path) -> None:
    (workspace / "a").touch()
    assert (await call(ViewTool(), lend(workspace), file_path="a")).text == "a is empty."


async def test_view_splits_lines_at_newlines_only(workspace: Path) -> None:
    (workspace / "a").write_bytes("a\x0bb\u2028c\x85d\r\nnext\r\n".encode())
    assert (await call(ViewTool(), lend(workspace), file_path="a")).text == "1\ta\x0bb\u2028c\x85d\n2\tnext"


# --- encodings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "note"),
    [
        ("né\n".encode(), ""),
        ("né\n".encode("utf-8-sig"), ""),
        ("né\n".encode("utf-16"), "\n[not UTF-8, read as utf-16-le]"),
        (b"\xfe\xff" + "né\n".encode("utf-16-be"), "\n[not UTF-8, read as utf-16-be]"),
        ("né\n".encode("utf-32"), "\n[not UTF-8, read as utf-32-le]"),
        ("né\n".encode("cp1252"), "\n[not UTF-8, read as cp1252]"),
    ],
)
async def test_text_is_decoded_and_another_encoding_is_named(workspace: Path, raw: bytes, note: str) -> None:
    (workspace / "a").write_bytes(raw)
    assert (await call(ViewTool(), lend(workspace), file_path="a")).text == "1\tné" + note


async def test_bytes_that_cp1252_lacks_are_read_as_latin_1(workspace: Path) -> None:
    (workspace / "a").write_bytes(b"caf\xe9 \x81\n")
    outcome = await call(ViewTool(), lend(workspace), file_path="a")
    assert outcome.text == "1\tcafé \x81\n[not UTF-8, read as latin-1]"


async def test_utf_8_with_a_few_bad_bytes_stays_utf_8(workspace: Path) -> None:
    (workspace / "a").write_bytes("äöü ".encode() + b"\xff\n")
    outcome = await call(ViewTool(), lend(workspace), file_path="a")
    assert outcome.text == "1\täöü \ufffd\n[UTF-8 with 1 bad bytes, shown as \ufffd]"


# --- what is not text --------------------------------------------------------------------------------------


async def test_a_binary_file_is_refused_with_type_and_size(workspace: Path) -> None:
    (workspace / "a").write_bytes(b"\x7fELF\0\0\0\1" * 100)
    error = await refused(ViewTool(), lend(workspace), file_path="a")
    assert "binary" in error and "800 bytes" in error


async def test_bytes_full_of_control_characters_are_binary_even_without_nul(workspace: Path) -> None:
    (workspace / "a").write_bytes(bytes(range(1, 32)) * 10 + b"\xff\xfe\xfd")
    assert "binary" in await refused(ViewTool(), lend(workspace), file_path="a")


async def test_a_broken_utf_16_file_is_binary(workspace: Path) -> None:
    (workspace / "a").write_bytes(b"\xff\xfea\0b")
    assert "binary" in await refused(ViewTool(), lend(workspace), file_path="a")


@pytest.mark.parametrize(
    ("form", "media_type"), [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp")]
)
async def test_an_image_is_known_by_its_first_bytes_and_shown(
    workspace: Path, form: str, media_type: str
) -> None:
    raw = picture(64, 48, form)
    (workspace / "picture.txt").write_bytes(raw)
    outcome = await call(ViewTool(), lend(workspace), file_path="picture.txt")
    assert [image.media_type for image in outcome.images] == [media_type]
    assert outcome.text == f"picture.txt: {media_type}, 64x48, {len(raw)} bytes"


@pytest.mark.slow
async def test_a_large_image_is_scaled_to_what_the_model_takes(workspace: Path) -> None:
    (workspace / "a.png").write_bytes(picture(4_000, 3_000))
    context = lend(workspace, CallingAgent(image_limits=lambda: OPENAI.limits))
    outcome = await call(ViewTool(), context, file_path="a.png")
    assert (outcome.images[0].width, outcome.images[0].height) == (1_024, 768)
    assert "1024x768 (scaled down from 4000x3000)" in outcome.text


async def test_a_model_without_eyes_is_told_what_it_cannot_see(workspace: Path) -> None:
    (workspace / "a.png").write_bytes(picture())
    context = lend(workspace, CallingAgent(image_limits=lambda: None))
    outcome = await call(ViewTool(), context, file_path="a.png")
    assert not outcome.images and not outcome.is_error
    assert "image/png" in outcome.text and "cannot look at pictures" in outcome.text


async def test_a_broken_image_is_an_error_that_names_it(workspace: Path) -> None:
    (workspace / "a.png").write_bytes(picture()[:60])
    assert "a.png is damaged" in await refused(ViewTool(), lend(workspace), file_path="a.png")


async def test_a_folder_is_for_ls(workspace: Path) -> None:
    (workspace / "src").mkdir()
    assert await refused(ViewTool(), lend(workspace), file_path="src") == "src is a folder, not a file."


async def test_a_pipe_is_never_opened(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    assert "is a pipe" in await refused(ViewTool(), lend(workspace), file_path="pipe")


async def test_devices_and_sockets_are_never_opened(workspace: Path) -> None:
    assert "is a device" in await refused(ViewTool(), lend(workspace), file_path="/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert "is a socket" in await refused(ViewTool(), lend(workspace), file_path="socket")


async def test_a_file_too_large_to_hold_is_refused_with_a_way_out(workspace: Path) -> None:
    with (workspace / "huge").open("wb") as file:
        file.truncate(60_000_000)
    error = await refused(ViewTool(), lend(workspace), file_path="huge")
    assert "60,000,000" in error and "grep" in error


# --- names -------------------------------------------------------------------------------------------------


async def test_a_missing_file_suggests_the_nearest_names(workspace: Path) -> None:
    (workspace / "src").mkdir()
    (workspace / "src" / "Parser.py").touch()
    (workspace / "src" / "main.py").touch()
    error = await refused(ViewTool(), lend(workspace), file_path="src/parsr.py")
    assert error == "src/parsr.py does not exist. Nearest: src/Parser.py."


async def test_a_file_of_another_ending_is_suggested(workspace: Path) -> None:
    (workspace / "app.tsx").touch()
    assert "Nearest: app.tsx." in await refused(ViewTool(), lend(workspace), file_path="app.javascript")


async def test_a_missing_folder_is_named_instead_of_the_file_in_it(workspace: Path) -> None:
    (workspace / "source").mkdir()
    error = await refused(ViewTool(), lend(workspace), file_path="sourc/deep/a.py")
    assert error == "sourc does not exist. Nearest: source."


async def test_a_path_through_a_file_is_missing(workspace: Path) -> None:
    (workspace / "a.py").touch()
    assert "does not exist" in await refused(ViewTool(), lend(workspace), file_path="a.py/b")


async def test_a_broken_link_says_where_it_leads(workspace: Path) -> None:
    (workspace / "link").symlink_to("gone")
    assert "link to gone" in await refused(ViewTool(), lend(workspace), file_path="link")


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5000, "~nobody-of-this-name/x"])
async def test_a_path_that_cannot_be_one_is_refused(workspace: Path, path: str) -> None:
    context = lend(workspace)
    assert await refused(ViewTool(), context, file_path=path)
    assert ViewTool().accesses(ViewTool.args(path), context)[0].kind == "path"


async def test_links_in_a_circle_are_refused(workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    assert "cannot be read" in await refused(ViewTool(), lend(workspace), file_path="a")


async def test_home_is_understood(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(workspace))
    (workspace / "a").write_text("x\n")
    assert (await call(ViewTool(), lend(workspace / "elsewhere"), file_path="~/a")).text == "1\tx"


async def test_view_accesses_the_real_file(workspace: Path) -> None:
    outside = workspace.parent / "secret"
    outside.write_text("x")
    (workspace / "link").symlink_to(outside)
    accesses = ViewTool().accesses(ViewTool.args("link"), lend(workspace))
    assert accesses == (Access("view", "path", str(outside.resolve()), writes=False),)


# --- what counts as read -----------------------------------------------------------------------------------


async def test_a_viewed_file_is_known_and_a_change_is_noticed(workspace: Path) -> None:
    file = workspace / "a"
    file.write_text("one\n" * 10)
    context = lend(workspace)
    assert context.agent.memory.state(file, file.read_bytes()) == "unread"
    await call(ViewTool(), context, file_path="a", limit=1)
    assert context.agent.memory.state(file, file.read_bytes()) == "unchanged"
    assert context.agent.memory.state(file, b"other") == "changed"


async def test_a_refused_view_leaves_the_file_unread(workspace: Path) -> None:
    file = workspace / "a"
    file.write_text("one\n")
    context = lend(workspace)
    await refused(ViewTool(), context, file_path="a", offset=5)
    assert context.agent.memory.state(file, file.read_bytes()) == "unread"
