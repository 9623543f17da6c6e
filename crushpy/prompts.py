"""Finds, checks and renders templates: what the model is told, in files a user can replace.

Looked up at every use, so that an edit holds from the next use on: a trusted project's
`.crushpy/templates/`, then the user's own, then the shipped ones.
"""

from collections.abc import Iterator
from pathlib import Path

from crushpy.errors import CrushpyError
from crushpy.messages import Data

MAX_BYTES = 256 * 1024
_MARKS = ("{{", "{%", "{#")


NAMES: dict[str, dict[str, object]] = {
    "summary": {
        "focus": "",
        "previous_summary": "",
        "todos": [{"text": "write the tests", "status": "pending"}],
        "target_tokens": 2_000,
        "cwd": "/project",
        "method": "auto",
    },
    "new_session": {"threshold": 75, "sections": ""},
}
"""The names each template may use, with a value to try it with. Templates not listed may use none."""


class TemplateProblem(CrushpyError):
    """A template that cannot be used: which file, which line, and why."""

    exit_code = 2


class Found(Data, frozen=True):
    """A template's text and where it comes from."""

    name: str
    path: str
    layer: str
    """project, user or shipped."""
    text: str


def shipped_dir() -> Path:
    """The templates that come with crushpy: inside the installed package, or at the top of a checkout."""
    packed = Path(__file__).parent / "_templates"
    return packed if packed.is_dir() else Path(__file__).parent.parent / "templates"


def shipped_names() -> list[str]:
    """Every template there is: system, summary, tools/bash, ..."""
    folder = shipped_dir()
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.md"))


class Templates:
    """The templates of one user in one project. `problems` collects what was wrong with a user's file."""

    def __init__(self, user: Path | None = None, project: Path | None = None) -> None:
        self._folders: list[tuple[str, Path]] = []
        if project is not None:
            self._folders.append(("project", project))
        if user is not None:
            self._folders.append(("user", user))
        self._folders.append(("shipped", shipped_dir()))
        self.problems: dict[str, TemplateProblem] = {}

    def candidates(self, name: str) -> Iterator[tuple[str, Path]]:
        """The files that would be used for `name`, best first."""
        for layer, folder in self._folders:
            path = folder / f"{name}.md"
            if path.exists() or layer == "shipped":
                yield layer, path

    def find(self, name: str) -> Found:
        """The template in force. A broken one of the user's is passed over and noted in `problems`."""
        for layer, path in self.candidates(name):
            try:
                return Found(name, str(path), layer, read(path))
            except TemplateProblem as problem:
                if layer == "shipped":
                    raise
                self.problems[str(path)] = problem
        raise TemplateProblem(f"There is no template named {name}.")

    def render(self, name: str, **values: object) -> str:
        """The template's text with `values` filled in, without trailing blank lines."""
        for layer, path in self.candidates(name):
            try:
                text = fill(read(path), str(path), values).rstrip("\n")
                if text or layer == "shipped":
                    return text
                raise TemplateProblem(f"{path}: it is empty", _HINT)
            except TemplateProblem as problem:
                if layer == "shipped":
                    raise
                self.problems[str(path)] = problem
        raise TemplateProblem(f"There is no template named {name}.")


def check(name: str, path: Path) -> None:
    """Reads and renders a file as the template `name`. Raises TemplateProblem where it cannot be used."""
    text = fill(read(path), str(path), NAMES.get(name, {}))
    if not text.strip():
        raise TemplateProblem(f"{path}: it is empty", _HINT)


def read(path: Path) -> str:
    """A template file's text, or a TemplateProblem that names what is wrong with it."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise TemplateProblem(f"{path}: larger than {MAX_BYTES // 1024} kB", "Shorten it or remove it.")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TemplateProblem(f"{path}: not UTF-8 text", "Save it as UTF-8.") from error
    except OSError as error:
        raise TemplateProblem(
            f"{path}: {error.strerror or error}", "Make it readable or remove it."
        ) from error
    if "\0" in text:
        raise TemplateProblem(f"{path}: not a text file", "Replace or remove it.")
    return text


def fill(text: str, origin: str, values: dict[str, object]) -> str:
    """`text` as a sandboxed Jinja template with strict names. Text without marks never loads Jinja."""
    if not any(mark in text for mark in _MARKS):
        return text
    import jinja2
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    try:
        return environment.from_string(text).render(values)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateProblem(f"{origin}, line {error.lineno}: {error.message}", _HINT) from error
    except jinja2.UndefinedError as error:
        known = ", ".join(sorted(values)) or "none"
        raise TemplateProblem(f"{origin}: {error.message}", f"Names it may use: {known}.") from error
    except (
        jinja2.TemplateError,
        ArithmeticError,
        TypeError,
        ValueError,
        RecursionError,
        MemoryError,
    ) as error:
        raise TemplateProblem(f"{origin}: {type(error).__name__}: {error}", _HINT) from error


_HINT = "Mend the file, or remove it to use the shipped one."
