"""Templates: found at every use, and a broken one never gets in the way."""

import os
from pathlib import Path

import pytest

from crushpy.core.templates import (
    MAX_BYTES,
    NAMES,
    TemplateProblem,
    Templates,
    fill_template,
    read_template,
    template_from_file,
)

VALUES = NAMES["summary"]


@pytest.fixture
def user(tmp_path: Path) -> Path:
    folder = tmp_path / "templates"
    folder.mkdir()
    return folder


BROKEN: dict[str, tuple[bytes, str]] = {
    "a tag that is not closed": (b"one\ntwo\n{% if focus %}\nthree", "line 3"),
    "an expression that is none": (b"{{ }}", "line 1"),
    "an unknown name": (b"fine\n\n{{ nobody }}", "line 3: 'nobody' is undefined"),
    "an unknown name in a condition": (b"{% if nobody %}x{% endif %}", "'nobody' is undefined"),
    "an unknown field": (b"{{ todos[0].nothing.at_all }}", "nothing"),
    "nothing": (b"", "it is empty"),
    "only blanks": (b" \n\t\n", "it is empty"),
    "nothing when filled in": (b"{{ focus }}\n{# a remark #}", "it is empty"),
    "binary": (b"\x7fELF\x02\x01\x00\xff\xfe", "not UTF-8"),
    "text with a NUL": (b"hello\0there", "not a text file"),
    "five megabytes": (b"x" * 5_000_000, "larger than 256 kB"),
    "itself": (b"{% include 'summary.md' %}", "line 1"),
    "its parent": (b"{% extends 'summary.md' %}", "line 1"),
    "a macro without end": (b"{% macro a() %}{{ a() }}{% endmacro %}\n{{ a() }}", "RecursionError"),
    "a text without end": (
        b"{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxxxx{% endfor %}{% endfor %}",
        "characters come out",
    ),
    "a bomb": (b"{{ 'x' * 10 ** 11 }}", "too long"),
    "a number bomb": (b"{{ 9 ** 99999 }}", "too large"),
    "a way out of the sandbox": (b"{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
    "a division by zero": (b"a\n{{ target_tokens // 0 }}", "line 2: ZeroDivisionError"),
    "a missing key": (b"{{ {}.popitem() }}", "KeyError"),
    "an unknown filter": (b"{{ focus | reverse_the_polarity }}", "line 1"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_template_is_named_with_its_reason_and_the_shipped_one_is_used(
    user: Path, what: str
) -> None:
    content, reason = BROKEN[what]
    (user / "summary.md").write_bytes(content)
    told: list[TemplateProblem] = []
    templates = Templates(user, on_problem=told.append)
    text, found = templates.rendered("summary", **VALUES)
    assert found.layer == "shipped" and "## Goal and constraints" in text
    assert templates.render("summary", **VALUES) == text
    (problem,) = told
    assert str(user / "summary.md") in problem.message and reason in problem.message and problem.hint
    with pytest.raises(TemplateProblem) as caught:
        template_from_file("summary", user / "summary.md")
    assert reason in caught.value.message


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a device"])
def test_instructions_ignore_what_is_not_a_regular_file(user: Path, kind: str) -> None:
    path = user / "summary.md"
    if kind == "a folder":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    templates = Templates(user)
    assert "## Goal and constraints" in templates.render("summary", **VALUES)
    assert "not a regular file" in templates.problems[str(path)].message


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to root")
def test_a_file_that_may_not_be_read_is_named(user: Path) -> None:
    (user / "summary.md").write_text("x")
    (user / "summary.md").chmod(0)
    templates = Templates(user)
    assert "## Goal" in templates.render("summary", **VALUES)
    assert "Make it readable" in templates.problems[str(user / "summary.md")].hint


def test_a_link_to_nowhere_counts_as_no_template(user: Path) -> None:
    (user / "summary.md").symlink_to(user / "gone.md")
    assert Templates(user).find("summary").layer == "shipped"


def test_a_mended_template_is_used_at_once_and_broken_again_it_is_told_again(user: Path) -> None:
    file = user / "summary.md"
    told: list[TemplateProblem] = []
    templates = Templates(user, on_problem=told.append)
    for content, layer in (("{{", "shipped"), ("mine {{ cwd }}", "user"), ("{{", "shipped")):
        file.write_text(content)
        assert templates.rendered("summary", **VALUES)[1].layer == layer
    assert len(told) == 2
    file.unlink()
    assert templates.rendered("summary", **VALUES)[1].layer == "shipped"


def test_the_projects_template_comes_before_the_users_and_both_before_the_shipped(user: Path) -> None:
    project = user.parent / "project"
    project.mkdir()
    (user / "summary.md").write_text("the user's")
    (project / "summary.md").write_text("the project's")
    assert Templates(user, project).render("summary", **VALUES) == "the project's"
    (project / "summary.md").write_text("{{ broken")
    assert Templates(user, project).render("summary", **VALUES) == "the user's"


def test_every_documented_name_may_be_used(user: Path) -> None:
    names = ("focus", "previous_summary", "todos", "target_tokens", "cwd", "method")
    (user / "summary.md").write_text("|".join(f"{{{{ {name} }}}}" for name in names))
    template_from_file("summary", user / "summary.md")
    values = {**VALUES, "focus": "{{ cwd }}", "previous_summary": "{% raise %}"}
    shown = Templates(user).render("summary", **values)
    assert shown.startswith("{{ cwd }}|{% raise %}|"), "values are never templates themselves"


def test_text_without_marks_is_taken_as_it_is(user: Path) -> None:
    assert fill_template("100% { plain }\n", "x", {}) == "100% { plain }\n"


def test_the_size_limit_is_exact(user: Path) -> None:
    file = user / "summary.md"
    file.write_bytes(b"x" * MAX_BYTES)
    assert len(read_template(file)) == MAX_BYTES
    file.write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(TemplateProblem):
        read_template(file)
