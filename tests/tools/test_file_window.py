"""A large file is read in pieces, and shows the same as if it had been read whole."""

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crushpy.tools.files import file_window
from crushpy.tools.files.file_memory import FileMemory
from crushpy.tools.files.text_file import normalize, split_lines
from crushpy.tools.truncate import cut_line

LINES = [f"{number} ünïcode line {'x' * (number % 90)}" for number in range(60_000)]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("large") / "log.txt"
    file.write_text("\n".join(LINES) + "\n")
    return file


@pytest.mark.parametrize("offset", [1, 2, 777, 31_000, 59_999, 60_000, 60_001, 90_000])
@pytest.mark.parametrize("limit", [1, 20, 2_000])
def test_lines_are_those_of_the_file(large: Path, offset: int, limit: int) -> None:
    window = file_window.read_window(large, offset, limit)
    assert window is not None
    assert window.total == len(LINES)
    whole = LINES[offset - 1 : offset - 1 + limit]
    assert window.lines == whole or len("".join(window.lines)) > 30_000
    assert window.lines == whole[: len(window.lines)]


def test_the_model_has_seen_the_file_as_it_is(large: Path) -> None:
    window = file_window.read_window(large, 5, 5)
    assert window is not None
    memory = FileMemory()
    memory.remember_digest(large, window.digest)
    assert memory.state(large, large.read_bytes()) == "unchanged"
    assert memory.state(large, large.read_bytes() + b"x") == "changed"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"small\n", id="small"),
        pytest.param(b"bad \xff byte\n" * 300_000, id="not UTF-8"),
        pytest.param(b"\xff\xfe" + "wide\n".encode("utf-16-le") * 300_000, id="UTF-16"),
        pytest.param(b"\0binary\n" * 300_000, id="binary"),
        pytest.param(b"\x89PNG\r\n\x1a\n" + b"\n" * 3_000_000, id="picture"),
        pytest.param(b"mac\r" * 900_000, id="old line endings"),
        pytest.param(("é\n" * 800_000).encode()[:-2], id="cut in a character"),
    ],
)
def test_what_needs_to_be_seen_whole_is_left_to_others(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert file_window.read_window(file, 1, 20) is None


@pytest.mark.parametrize("before", ["", "a\n"], ids=["one line", "another before"])
def test_of_a_line_of_megabytes_the_beginning_is_kept(tmp_path: Path, before: str) -> None:
    file = tmp_path / "file"
    file.write_text(f"{before}{'é' * 3_000_000}\r\nlast\r\n", newline="")
    tracemalloc.start()
    window = file_window.read_window(file, 1, 20)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert window is not None
    assert window.lines == [*before.split(), cut_line("é" * 3_000_000), "last"]
    assert most < 3_000_000


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(st.text(alphabet="aé\r\u2028日", max_size=12), min_size=1, max_size=40),
    offset=st.integers(1, 45),
    limit=st.integers(1, 45),
    end=st.booleans(),
    step=st.integers(1, 50),
)
def test_any_text_in_any_pieces(lines: list[str], offset: int, limit: int, end: bool, step: int) -> None:
    raw = ("\n".join(lines) + ("\n" if end else "")).encode()
    whole = split_lines(normalize(raw.decode()))
    pieces = [raw[at : at + step] for at in range(0, len(raw), step)]
    window = file_window._window(iter(pieces), offset, limit)  # pyright: ignore[reportPrivateUsage]
    if "\n" not in raw.decode() and "\r" in raw.decode():
        assert window is None
        return
    assert window is not None
    assert window.total == len(whole)
    assert window.lines == whole[offset - 1 : offset - 1 + limit]
