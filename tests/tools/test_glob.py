"""Finding files by name."""

import os
from pathlib import Path

import pytest
from filetools import call, lend, refused
from hypothesis import given
from hypothesis import strategies as st

from crushpy.core.access import Access
from crushpy.core.messages import FileList
from crushpy.tools.errors import ToolError
from crushpy.tools.glob import GlobTool
from crushpy.tools.search.files_below import GlobPattern
from crushpy.tools.search.ripgrep import find_ripgrep


@pytest.fixture
def tool() -> GlobTool:
    return GlobTool()


def grow(root: Path, *paths: str) -> None:
    """Makes files, each a second younger than the one before."""
    for age, path in enumerate(paths):
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
        os.utime(place, (1_000_000 + age, 1_000_000 + age))


def test_the_ripgrep_that_comes_with_crushpy_is_found() -> None:
    rg = find_ripgrep()
    assert rg is not None and os.access(rg, os.X_OK)


async def test_files_come_newest_first(workspace: Path, tool: GlobTool) -> None:
    grow(workspace, "old.py", "src/mid.py", "other.txt", "new.py")
    outcome = await call(tool, lend(workspace), pattern="*.py")
    assert outcome.text == "new.py\nsrc/mid.py\nold.py"
    assert outcome.display == FileList(("new.py", "src/mid.py", "old.py"), 3)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", {"a.py", "src/b.py", "src/deep/c.py", ".hidden/d.py"}),
        ("**/*.py", {"a.py", "src/b.py", "src/deep/c.py", ".hidden/d.py"}),
        ("src/*.py", {"src/b.py"}),
        ("src/**/*.py", {"src/b.py", "src/deep/c.py"}),
        ("src/**", {"src/b.py", "src/deep/c.py", "src/x.ts", "src/y.tsx"}),
        ("src/", {"src/b.py", "src/deep/c.py", "src/x.ts", "src/y.tsx"}),
        ("*.{ts,tsx}", {"src/x.ts", "src/y.tsx"}),
        ("**/deep/*", {"src/deep/c.py"}),
        ("[ab].p?", {"a.py", "src/b.py"}),
        ("./a.py", {"a.py"}),
    ],
)
async def test_patterns_mean_what_they_say(
    workspace: Path, tool: GlobTool, pattern: str, found: set[str]
) -> None:
    grow(workspace, "a.py", "src/b.py", "src/deep/c.py", "src/x.ts", "src/y.tsx", ".hidden/d.py", ".git/e.py")
    outcome = await call(tool, lend(workspace), pattern=pattern)
    assert set(outcome.text.splitlines()) == found


async def test_ignored_files_are_left_out_even_where_the_pattern_names_them(
    workspace: Path, tool: GlobTool
) -> None:
    grow(workspace, "a.py", "gen.py", "node_modules/b.py", "sub/c.py", "sub/gen.py")
    (workspace / ".gitignore").write_text("node_modules/\ngen.py\n")
    (workspace / "sub" / ".gitignore").write_text("!gen.py\n")
    assert (await call(tool, lend(workspace), pattern="**/*.py")).text == "sub/gen.py\nsub/c.py\na.py"


async def test_glob_shows_100_and_counts_the_rest(workspace: Path, tool: GlobTool) -> None:
    grow(workspace, *(f"{n:03}.py" for n in range(130)))
    outcome = await call(tool, lend(workspace), pattern="*.py")
    lines = outcome.text.splitlines()
    assert (lines[0], lines[99], len(lines)) == ("129.py", "030.py", 101)
    assert lines[100] == "[30 older files left out: narrow the pattern]"
    assert isinstance(outcome.display, FileList) and outcome.display.total == 130


async def test_links_are_not_followed(workspace: Path, tool: GlobTool) -> None:
    grow(workspace, "real/a.py")
    (workspace / "loop").symlink_to(".")
    (workspace / "link.py").symlink_to("real/a.py")
    assert (await call(tool, lend(workspace), pattern="*.py")).text == "real/a.py"


async def test_a_folder_can_be_named_and_paths_stay_usable(workspace: Path, tool: GlobTool) -> None:
    grow(workspace, "src/a.py", "b.py")
    assert (await call(tool, lend(workspace), pattern="*.py", path="src")).text == "src/a.py"
    absolute = f"{workspace}/src/*.py"
    assert (await call(tool, lend(workspace), pattern=absolute)).text == "src/a.py"


async def test_glob_says_when_nothing_is_found(workspace: Path, tool: GlobTool) -> None:
    outcome = await call(tool, lend(workspace), pattern="*.rs")
    assert outcome.text == "No file matches *.rs. Ignored files are left out."
    assert not outcome.is_error


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "src/../../x", "~/x"])
async def test_a_pattern_cannot_lead_out_of_the_folder(workspace: Path, pattern: str) -> None:
    assert "leads out of" in await refused(GlobTool(), lend(workspace), pattern=pattern)


async def test_senseless_requests_are_refused_with_a_way_out(workspace: Path) -> None:
    grow(workspace, "src/a.py")
    assert "empty" in await refused(GlobTool(), lend(workspace), pattern=" ")
    assert "is a file" in await refused(GlobTool(), lend(workspace), pattern="*", path="src/a.py")
    assert "Nearest: src." in await refused(GlobTool(), lend(workspace), pattern="*", path="scr")
    braces = "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"
    assert "too many alternatives" in await refused(GlobTool(), lend(workspace), pattern=braces)


async def test_names_with_odd_characters_are_found(workspace: Path, tool: GlobTool) -> None:
    grow(workspace, "two\nlines.py", "sp ace.py", "ünï.py")
    outcome = await call(tool, lend(workspace), pattern="*.py")
    assert isinstance(outcome.display, FileList)
    assert outcome.display.rows == ("ünï.py", "sp ace.py", "two\nlines.py")


def test_glob_accesses_the_searched_folder(workspace: Path) -> None:
    accesses = GlobTool().accesses(GlobTool.args("*", "src"), lend(workspace))
    assert accesses == (Access("glob", "path", str(workspace.resolve() / "src")),)


def test_a_pattern_full_of_stars_takes_no_time() -> None:
    assert not GlobPattern("*a" * 40 + "b").matches("a" * 200)
    assert not GlobPattern("**/a/" * 40 + "b").matches("/".join("a" * 200))


@given(st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=5))
def test_a_path_matches_itself_and_what_widens_it(parts: list[str]) -> None:
    path = "/".join(parts)
    assert GlobPattern("./" + path).matches(path)
    assert GlobPattern(f"**/{parts[-1]}").matches(path)
    assert GlobPattern("/".join("*" for _ in parts) if len(parts) > 1 else "./*").matches(path)
    assert not GlobPattern(f"./{path}/c").matches(path)


def test_braces_are_alternatives() -> None:
    assert GlobPattern("{a,b{c,d}}").matches("bd")
    assert not GlobPattern("{a,b{c,d}}").matches("b")
    with pytest.raises(ToolError):
        GlobPattern("{a,b,c,d}" * 4)
