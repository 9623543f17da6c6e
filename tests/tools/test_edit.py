"""Replacing a passage: what is found, what is refused, and that every other byte stays."""

from pathlib import Path

import pytest
from filetools import call, knows, lend, names, refused
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from crushpy.core.access import Access
from crushpy.core.messages import Diff
from crushpy.tools.base import CallContext
from crushpy.tools.edit import EditArgs, EditTool
from crushpy.tools.errors import DoesNotFit
from crushpy.tools.view import ViewTool


@pytest.fixture
def context(workspace: Path) -> CallContext:
    return lend(workspace)


def put(context: CallContext, content: str | bytes, name: str = "a.py") -> Path:
    """A file that the model has seen."""
    file = context.workspace.cwd / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    knows(context, file)
    return file


async def edit(context: CallContext, old: str, new: str, **more: object) -> str:
    more.setdefault("file_path", "a.py")
    return (await call(EditTool(), context, old_string=old, new_string=new, **more)).text


async def refusal(context: CallContext, old: str, new: str, **more: object) -> str:
    more.setdefault("file_path", "a.py")
    return await refused(EditTool(), context, old_string=old, new_string=new, **more)


# --- the plain case ----------------------------------------------------------------------------------------


async def test_the_passage_is_replaced_and_shown_in_its_new_place(context: CallContext) -> None:
    file = put(context, "one\ntwo\nthree\nfour\nfive\nsix\n")
    args = {"file_path": "a.py", "old_string": "three\nfour", "new_string": "3\n3b\n4"}
    outcome = await call(EditTool(), context, **args)
    assert file.read_text() == "one\ntwo\n3\n3b\n4\nfive\nsix\n"
    assert outcome.text == "Edited a.py (+3 -2).\n1\tone\n2\ttwo\n3\t3\n4\t3b\n5\t4\n6\tfive\n7\tsix"
    assert outcome.display == Diff(
        "a.py",
        "--- a.py\n+++ a.py\n@@ -1,6 +1,7 @@\n one\n two\n-three\n-four\n+3\n+3b\n+4\n five\n six",
        added=3,
        removed=2,
    )


async def test_a_part_of_a_line_can_be_replaced(context: CallContext) -> None:
    file = put(context, "a = old(1)\n")
    await edit(context, "old", "new")
    assert file.read_text() == "a = new(1)\n"


async def test_a_passage_can_be_deleted(context: CallContext) -> None:
    file = put(context, "one\ntwo\nthree\n")
    await edit(context, "two\n", "")
    assert file.read_text() == "one\nthree\n"


async def test_the_next_edit_needs_no_new_view(context: CallContext) -> None:
    file = put(context, "one\n")
    await edit(context, "one", "two")
    await edit(context, "two", "three")
    assert file.read_text() == "three\n"


async def test_a_long_change_is_shown_by_both_ends(context: CallContext) -> None:
    put(context, "start\nx\nend\n")
    text = await edit(context, "x", "\n".join(f"new {n}" for n in range(50)))
    assert "new 0" in text and "new 49" in text and "..." in text
    assert "new 25" not in text


# --- unique, or all ----------------------------------------------------------------------------------------


async def test_a_passage_that_is_not_unique_names_count_and_lines(context: CallContext) -> None:
    file = put(context, "x\ny\nx\nz\nx\n")
    error = await refusal(context, "x", "w")
    assert "3 places (lines 1, 3, 5)" in error and "replace_all" in error
    assert file.read_text() == "x\ny\nx\nz\nx\n"


async def test_edit_lists_some_of_many_matches(context: CallContext) -> None:
    put(context, "x\n" * 30)
    assert "30 places (lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 20 more)" in await refusal(context, "x", "w")


async def test_edit_replaces_all_matches_on_request(context: CallContext) -> None:
    file = put(context, "x\ny\nx x\n")
    text = await edit(context, "x", "w", replace_all=True)
    assert file.read_text() == "w\ny\nw w\n"
    assert "replaced in 3 places" in text


# --- refused -----------------------------------------------------------------------------------------------


async def test_a_file_that_was_not_read_is_refused(context: CallContext) -> None:
    (context.workspace.cwd / "a.py").write_text("one\n")
    assert await refusal(context, "one", "two") == "a.py has not been read yet: view it first."
    await call(ViewTool(), context, file_path="a.py")
    await edit(context, "one", "two")


async def test_a_file_changed_since_it_was_read_is_refused(context: CallContext) -> None:
    file = put(context, "one\n")
    file.write_text("one\nmore\n")
    assert "has changed since it was read: view it again" in await refusal(context, "one", "two")
    assert file.read_text() == "one\nmore\n"


async def test_a_file_touched_but_with_the_same_content_is_not_changed(context: CallContext) -> None:
    file = put(context, "one\n")
    file.write_text("one\n")
    await edit(context, "one", "two")
    assert file.read_text() == "two\n"


async def test_identical_strings_are_refused(context: CallContext) -> None:
    put(context, "one\n")
    assert "identical" in await refusal(context, "one", "one")
    assert "identical" in await refusal(context, "one\r\n", "one\n")


async def test_an_empty_old_string_in_an_existing_file_is_refused(context: CallContext) -> None:
    put(context, "one\n")
    assert "Use write" in await refusal(context, "", "two")


async def test_an_empty_old_string_makes_a_new_file(context: CallContext) -> None:
    text = await edit(context, "", "hello\n", file_path="new/b.py")
    assert (context.workspace.cwd / "new" / "b.py").read_text() == "hello\n"
    assert text.startswith("Created new/b.py (+1 -0).")
    await edit(context, "hello", "bye", file_path="new/b.py")


async def test_a_missing_file_suggests_a_name(context: CallContext) -> None:
    put(context, "one\n", "main.py")
    assert "Nearest: main.py" in await refusal(context, "one", "two", file_path="mian.py")


async def test_a_binary_file_is_refused(context: CallContext) -> None:
    put(context, b"one\0\1\2")
    assert "binary" in await refusal(context, "one", "two")


async def test_text_that_the_encoding_lacks_is_refused(context: CallContext) -> None:
    file = put(context, "né\n".encode("cp1252"))
    error = await refusal(context, "n", "→")
    assert "cp1252" in error and "U+2192 (→)" in error
    assert file.read_bytes() == "né\n".encode("cp1252")


# --- not found ---------------------------------------------------------------------------------------------


async def test_a_passage_that_is_not_there_shows_the_nearest_lines(context: CallContext) -> None:
    put(context, "import os\n\ndef total(items):\n    return sum(items)\n")
    error = await refusal(context, "def total(items):\n    return max(items)", "x")
    assert "3\tdef total(items):\n4\t    return sum(items)" in error


async def test_a_misspelt_line_shows_the_one_it_resembles(context: CallContext) -> None:
    put(context, "alpha = 1\nbeta = compute_the_total(values)\ngamma = 3\n")
    error = await refusal(context, "beta = compute_total(value)", "x")
    assert "Nearest in the file:\n2\tbeta = compute_the_total(values)\n" in error


async def test_edit_suggests_viewing_again_when_nothing_is_similar(context: CallContext) -> None:
    put(context, "alpha\n")
    assert "view the file again" in await refusal(context, "zzzzzzzzzzzz", "x")


async def test_line_numbers_copied_from_view_are_pointed_out(context: CallContext) -> None:
    put(context, "alpha\nbeta\n")
    assert "line numbers" in await refusal(context, "1\talpha\n2\tbeta", "x")


# --- the second try ----------------------------------------------------------------------------------------


async def test_lost_indentation_is_put_back_and_said(context: CallContext) -> None:
    file = put(context, "class A:\n    def f(self):\n        return 1\n\n    x = 2\n")
    text = await edit(context, "def f(self):\n    return 1", "def f(self):\n    if self:\n        return 3")
    assert file.read_text() == (
        "class A:\n    def f(self):\n        if self:\n            return 3\n\n    x = 2\n"
    )
    assert "found at lines 2-3 with other white space than written and new_string was indented to fit" in text


async def test_edit_removes_extra_indentation(context: CallContext) -> None:
    file = put(context, "def f():\n    return 1\n")
    await edit(context, "    def f():\n        return 1", "    def f():\n        return 2\n\n    x = 1")
    assert file.read_text() == "def f():\n    return 2\n\nx = 1\n"


async def test_spaces_written_for_tabs_become_tabs(context: CallContext) -> None:
    file = put(context, "func f() {\n\tif x {\n\t\treturn\n\t}\n}\n")
    await edit(
        context,
        "    if x {\n        return\n    }",
        "    if x {\n        for {\n            y()\n        }\n    }",
    )
    assert file.read_text() == "func f() {\n\tif x {\n\t\tfor {\n\t\t\ty()\n\t\t}\n\t}\n}\n"


async def test_two_spaces_written_for_four_become_four(context: CallContext) -> None:
    file = put(context, "def f():\n    if x:\n        y()\n")
    await edit(context, "def f():\n  if x:\n    y()", "def f():\n  if x:\n    z()\n  w()")
    assert file.read_text() == "def f():\n    if x:\n        z()\n    w()\n"


async def test_trailing_white_space_does_not_matter(context: CallContext) -> None:
    file = put(context, "one   \ntwo\t\nthree\n")
    text = await edit(context, "one\ntwo\n", "1\n2\n")
    assert file.read_text() == "1\n2\nthree\n"
    assert "found at lines 1-2 with other white space than written." in text


async def test_a_missing_last_newline_does_not_matter_and_stays_missing(context: CallContext) -> None:
    file = put(context, "one\ntwo")
    await edit(context, "two\n", "2\n")
    assert file.read_text() == "one\n2"


async def test_a_second_try_that_fits_two_places_is_refused(context: CallContext) -> None:
    file = put(context, "if a:\n    go( )\nif b:\n        go( )\n")
    before = file.read_text()
    error = await refusal(context, "\tgo( )\n", "stop()")
    assert "2 places (lines 2, 4)" in error
    assert file.read_text() == before


@pytest.mark.parametrize("old", ["b()\nc()\n   d()", "  b()\n   c()\nd()", "\tb()\n   c()\nd()"])
async def test_indentation_that_follows_no_rule_is_refused(context: CallContext, old: str) -> None:
    file = put(context, "if a:\n    b()\n    c()\nd()\n")
    before = file.read_text()
    assert "cannot be carried over" in await refusal(context, old, "x()")
    assert file.read_text() == before


async def test_white_space_inside_a_line_does_matter(context: CallContext) -> None:
    file = put(context, "a  =  1\n")
    assert "not found" in await refusal(context, "a = 1", "a = 2")
    assert file.read_text() == "a  =  1\n"


async def test_a_second_try_that_changes_nothing_is_refused(context: CallContext) -> None:
    put(context, "one  \ntwo\n")
    assert "Nothing would change" in await refusal(context, "one\n", "one  \n")


# --- line endings ------------------------------------------------------------------------------------------


async def test_windows_line_endings_are_kept(context: CallContext) -> None:
    file = put(context, b"one\r\ntwo\r\nthree\r\n")
    text = await edit(context, "one\ntwo", "1\n1b\n2")
    assert file.read_bytes() == b"1\r\n1b\r\n2\r\nthree\r\n"
    assert "\r" not in text and "Note" not in text


async def test_old_mac_line_endings_are_kept(context: CallContext) -> None:
    file = put(context, b"one\rtwo\rthree\r")
    await edit(context, "one\ntwo", "1\n1b\n2")
    assert file.read_bytes() == b"1\r1b\r2\rthree\r"


async def test_mixed_line_endings_stay_as_they_are_around_the_change(context: CallContext) -> None:
    file = put(context, b"a\r\nb\nc\r\nd\n")
    await edit(context, "c", "c1\nc2")
    assert file.read_bytes() == b"a\r\nb\nc1\r\nc2\r\nd\n"
    await edit(context, "b", "b1\nb2")
    assert file.read_bytes() == b"a\r\nb1\nb2\nc1\r\nc2\r\nd\n"


async def test_a_model_that_writes_windows_endings_is_understood(context: CallContext) -> None:
    file = put(context, "one\ntwo\n")
    await edit(context, "one\r\ntwo", "1\r\n2")
    assert file.read_bytes() == b"1\n2\n"


# --- other forms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bom", "encoding"),
    [
        (b"\xef\xbb\xbf", "utf-8"),
        (b"\xff\xfe", "utf-16-le"),
        (b"\xfe\xff", "utf-16-be"),
        (b"\xff\xfe\0\0", "utf-32-le"),
        (b"", "cp1252"),
    ],
)
async def test_encoding_and_mark_are_kept(context: CallContext, bom: bytes, encoding: str) -> None:
    file = put(context, bom + "né = 1\r\nx\r\n".encode(encoding))
    await edit(context, "né = 1", "né = ü\n# é")
    assert file.read_bytes() == bom + "né = ü\r\n# é\r\nx\r\n".encode(encoding)


async def test_bad_bytes_elsewhere_in_a_utf_8_file_survive(context: CallContext) -> None:
    file = put(context, "äöü\n".encode() + b"bad \xff\n" + b"end\n")
    outcome = await call(EditTool(), context, file_path="a.py", old_string="end", new_string="Ende →")
    assert file.read_bytes() == "äöü\n".encode() + b"bad \xff\n" + "Ende →\n".encode()
    assert isinstance(outcome.display, Diff) and " bad \ufffd" in outcome.display.unified


async def test_edit_replaces_text_in_a_10_mb_file(context: CallContext) -> None:
    content = "".join(f"{n:>99}\n" for n in range(100_000))
    file = put(context, content)
    outcome = await call(
        EditTool(), context, file_path="a.py", old_string=" 70000\n", new_string=" seventy\nmore\n"
    )
    assert file.read_text() == content.replace(" 70000\n", " seventy\nmore\n")
    assert isinstance(outcome.display, Diff)
    assert (outcome.display.added, outcome.display.removed) == (2, 1)
    assert len(outcome.text) < 2_000


async def test_a_replacement_all_over_a_large_file_gives_a_bounded_diff(context: CallContext) -> None:
    put(context, "".join(f"value {n}\nkeep\n" for n in range(20_000)))
    args = {"file_path": "a.py", "old_string": "value", "new_string": "number", "replace_all": True}
    outcome = await call(EditTool(), context, **args)
    assert isinstance(outcome.display, Diff)
    assert (outcome.display.added, outcome.display.removed) == (20_000, 20_000)
    assert outcome.display.unified.endswith("more lines are not shown")
    assert len(outcome.display.unified) < 50_000


# --- properties --------------------------------------------------------------------------------------------

_ENDINGS = st.sampled_from(["\n", "\r\n"])
_FORMS = st.sampled_from(
    [(b"", "utf-8"), (b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")]
)
_WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff"), max_size=12)
_every = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


async def fits(args: EditArgs, context: CallContext) -> bool:
    try:
        return await EditTool().preview(args, context) is not None
    except DoesNotFit:
        return False


@_every
@given(
    form=_FORMS, ending=_ENDINGS, before=_WORDS, lines=st.lists(_WORDS), new=st.lists(_WORDS), after=_WORDS
)
async def test_edit_keeps_all_other_bytes(
    workspace: Path,
    form: tuple[bytes, str],
    ending: str,
    before: str,
    lines: list[str],
    new: list[str],
    after: str,
) -> None:
    bom, encoding = form
    passage = ["«begin»", *lines, "«end»"]
    replacement = ["«new»", *new]
    context = lend(workspace)
    file = put(context, bom + f"{before}{ending}{ending.join(passage)}{ending}{after}".encode(encoding))
    await edit(context, "\n".join(passage), "\n".join(replacement))
    assert file.read_bytes() == bom + f"{before}{ending}{ending.join(replacement)}{ending}{after}".encode(
        encoding
    )
    assert names(workspace) == ["a.py"]


@_every
@given(
    head=st.lists(st.tuples(_WORDS, _ENDINGS)),
    tail=st.lists(st.tuples(_WORDS, _ENDINGS)),
    new=st.text("ab\n", max_size=8),
)
async def test_mixed_line_endings_outside_the_passage_never_change(
    workspace: Path, head: list[tuple[str, str]], tail: list[tuple[str, str]], new: str
) -> None:
    before = "".join(word + ending for word, ending in head).encode()
    after = "".join(word + ending for word, ending in tail).encode()
    context = lend(workspace)
    file = put(context, before + b"\xc2\xabhere\xc2\xbb" + after)
    await edit(context, "«here»", new)
    result = file.read_bytes()
    assert result.startswith(before) and result.endswith(after)
    assert result[len(before) : len(result) - len(after)].replace(b"\r\n", b"\n") == new.encode()


@_every
@given(head=st.binary(max_size=40), tail=st.binary(max_size=40), new=st.text("xyz \n", max_size=8))
async def test_edit_keeps_any_surrounding_bytes_or_changes_nothing(
    workspace: Path, head: bytes, tail: bytes, new: str
) -> None:
    context = lend(workspace)
    raw = head + b"<<passage>>" + tail
    file = put(context, raw)
    if not await fits(EditTool.args("a.py", "<<passage>>", new), context):
        await refusal(context, "<<passage>>", new)
        assert file.read_bytes() == raw
        return
    await edit(context, "<<passage>>", new)
    result = file.read_bytes()
    assert result.startswith(head) and result.endswith(tail)


@_every
@given(
    text=st.text("ab \t\n\r", max_size=30),
    old=st.text("ab \t\n", min_size=1, max_size=6),
    everywhere=st.booleans(),
)
async def test_an_edit_works_or_leaves_the_file_alone(
    workspace: Path, text: str, old: str, everywhere: bool
) -> None:
    context = lend(workspace)
    file = put(context, text)
    args = EditTool.args("a.py", old, "NEW", everywhere)
    assume(old != "NEW")
    if not await fits(args, context):
        await refusal(context, old, "NEW", replace_all=everywhere)
        assert file.read_bytes() == text.encode()
        return
    await EditTool().run(args, context)
    count = file.read_text().count("NEW")
    assert count == 1 or (everywhere and count > 1)


# --- around it ---------------------------------------------------------------------------------------------


async def test_the_preview_is_the_diff_that_will_happen_and_changes_nothing(context: CallContext) -> None:
    file = put(context, "one\ntwo\n")
    args = EditTool.args("a.py", "one", "1")
    preview = await EditTool().preview(args, context)
    assert file.read_text() == "one\ntwo\n"
    assert (await EditTool().run(args, context)).display == preview


@pytest.mark.parametrize("path", ["unread.py", "missing.py", "", "a\0b", "."])
async def test_the_preview_of_an_edit_that_would_fail_is_nothing(context: CallContext, path: str) -> None:
    (context.workspace.cwd / "unread.py").write_text("one\n")
    assert await EditTool().preview(EditTool.args(path, "zero", "1"), context) is None


async def test_edit_has_no_preview_when_it_does_not_match(context: CallContext) -> None:
    put(context, "one\n")
    with pytest.raises(DoesNotFit, match=r"a\.py"):
        await EditTool().preview(EditTool.args("a.py", "zero", "1"), context)


async def test_edit_accesses_the_real_file_for_writing(context: CallContext) -> None:
    (context.workspace.cwd / "link").symlink_to("/etc/hosts")
    accesses = EditTool().accesses(EditTool.args("link", "a", "b"), context)
    assert accesses == (Access("edit", "path", str(Path("/etc/hosts").resolve()), writes=True),)
