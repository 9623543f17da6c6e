"""Finds, checks and renders templates: prompts in files that a user can replace.

Looked up at every use, so that an edit applies from the next use on: a trusted project's
`.crushpy/templates/`, then the user's, then the shipped ones.
"""

import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

MAX_BYTES = 256 * 1024
MAX_RENDERED_CHARS = 1_000_000
"""Characters of rendered text."""
_MARKS = ("{{", "{%", "{#")
T = TypeVar("T")


NEW_SESSION_NAMES: dict[str, object] = {
    "threshold": 75,
    "fallback": 90,
    "longest_summary": 4_000,
    "sections": "",
}
NAMES: dict[str, dict[str, object]] = {
    "summary": {
        "focus": "",
        "previous_summary": "",
        "todos": [{"text": "write the tests", "status": "pending"}],
        "target_tokens": 2_000,
        "cwd": "/project",
        "method": "auto",
    },
    "plan": {"task": False},
    "new_session": NEW_SESSION_NAMES,
    "small/new_session": NEW_SESSION_NAMES,
}
"""The variables each template may use, with example values. Other templates have none."""


PHRASES = "rules"
"""The template with the phrases of standing rules. Not a prompt but TOML: texts by language and kind."""
PHRASE_KINDS = (
    *("label", "lead", "start", "opening", "contrast", "general", "state", "short", "when"),
    *("firm", "phrase", "hint", "report", "task", "unless", "question", "decision", "end"),
)
FORMER_KINDS = ("revoke", "common")
"""In copies of an earlier version: not used any more, because no sentence ends a rule."""


class TemplateProblem(CrushpyError):
    """A template that cannot be used: which file, which line, and why."""

    exit_code = 2


class Template(Data, frozen=True):
    """A template's text and where it comes from."""

    name: str
    path: str
    layer: str
    """project, user or shipped; file if it was named explicitly."""
    text: str


def shipped_dir() -> Path:
    """The templates that come with crushpy: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).parents[1]
    packed = package / "_templates"
    return packed if packed.is_dir() else package.parent / "templates"


def shipped_names() -> list[str]:
    """All templates: system, summary, tools/bash, ..."""
    folder = shipped_dir()
    files = (path for path in folder.rglob("*") if path.suffix in (".md", ".toml"))
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in files)


def template_file(name: str) -> str:
    return f"{name}.toml" if name == PHRASES else f"{name}.md"


class Templates:
    """The templates of one user in one project. `problems` collects errors in the user's files."""

    def __init__(
        self,
        user: Path | None = None,
        project: Path | None = None,
        on_problem: Callable[[TemplateProblem], None] = lambda _: None,
    ) -> None:
        """`on_problem` is called once for each problem."""
        layers = ("project", project), ("user", user), ("shipped", shipped_dir())
        self._folders = [(layer, folder) for layer, folder in layers if folder is not None]
        self.problems: dict[str, TemplateProblem] = {}
        self._on_problem = on_problem

    def candidates(self, name: str) -> Iterator[tuple[str, Path]]:
        """The files that would be used for `name`, best first."""
        for layer, folder in self._folders:
            path = folder / template_file(name)
            if path.exists() or layer == "shipped":
                yield layer, path

    def first_usable(self, name: str, use: Callable[[str, Path], T]) -> T:
        """What `use` makes of the best template. A broken one is skipped and recorded in `problems`."""
        for layer, path in self.candidates(name):
            try:
                return use(layer, path)
            except TemplateProblem as problem:
                if layer == "shipped":
                    raise
                known = self.problems.get(str(path))
                self.problems[str(path)] = problem
                if known is None or known.message != problem.message:
                    self._on_problem(problem)
        raise TemplateProblem(f"There is no template named {name}.")

    def find(self, name: str) -> Template:
        return self.first_usable(
            name, lambda layer, path: Template(name, str(path), layer, read_template(path))
        )

    def render(self, name: str, **values: object) -> str:
        """The template's text with `values` filled in, without trailing blank lines."""
        return self.rendered(name, **values)[0]

    def rendered(self, name: str, **values: object) -> tuple[str, Template]:
        """The rendered text, and the template it came from."""

        def use(layer: str, path: Path) -> tuple[str, Template]:
            source = read_template(path)
            text = fill_template(source, str(path), values).rstrip("\n")
            if not text.strip() and layer != "shipped":
                raise TemplateProblem(f"{path}: it is empty", _HINT)
            self.problems.pop(str(path), None)
            return text, Template(name, str(path), layer, source)

        return self.first_usable(name, use)


def check_template(name: str, text: str, origin: str) -> None:
    """Renders `text` as the template `name`. Raises TemplateProblem if it cannot be used."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise TemplateProblem(f"{origin}: larger than {MAX_BYTES // 1024} kB", "Shorten it or remove it.")
    if name == PHRASES:
        read_phrases(text, origin)
    elif not fill_template(text, origin, NAMES.get(name, {})).strip():
        raise TemplateProblem(f"{origin}: it is empty", _HINT)


def read_phrases(text: str, origin: str) -> dict[str, list[str]]:
    """The phrases of all languages, by kind. Raises TemplateProblem if the file cannot be used."""
    import tomllib

    try:
        languages = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TemplateProblem(f"{origin}: {error}", _HINT) from error
    found: dict[str, list[str]] = {kind: [] for kind in PHRASE_KINDS}
    for language, table in cast("dict[str, dict[str, object]]", languages).items():
        for kind, value in table.items() if hasattr(table, "items") else [(language, None)]:
            if kind in FORMER_KINDS:
                continue
            if kind not in found or not isinstance(value, str):
                kinds = ", ".join(PHRASE_KINDS)
                raise TemplateProblem(
                    f"{origin}: {kind} in [{language}] is not a text of a known kind",
                    f"Known kinds: {kinds}.",
                )
            phrases = value.replace("\n", ",").split(",")
            found[kind] += [phrase.strip() for phrase in phrases if phrase.strip()]
    return found


def template_from_file(name: str, path: Path) -> Template:
    """A file given by the user as the template `name`. Raises TemplateProblem if it cannot be used."""
    text = read_template(path)
    check_template(name, text, str(path))
    return Template(name, str(path), "file", text)


def read_template(path: Path) -> str:
    """A template file's text, or a TemplateProblem that names what is wrong with it."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # reading a pipe or a device may never end
            raise TemplateProblem(f"{path}: not a regular file", "Replace or remove it.")
        if found.st_size > MAX_BYTES:
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


def fill_template(text: str, origin: str, values: dict[str, object]) -> str:
    """`text` as a sandboxed Jinja template with strict names. Text without marks never loads Jinja."""
    if not any(mark in text for mark in _MARKS):
        return text
    import jinja2

    try:
        pieces: list[str] = []
        size = 0
        for piece in _environment().from_string(text).generate(values):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_RENDERED_CHARS:
                raise TemplateProblem(
                    f"{origin}: more than {MAX_RENDERED_CHARS:,} characters come out of it", _HINT
                )
        return "".join(pieces)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateProblem(f"{origin}, line {error.lineno}: {error.message}", _HINT) from error
    except jinja2.UndefinedError as error:
        known = ", ".join(sorted(values)) or "none"
        raise TemplateProblem(
            f"{origin}{_line(error)}: {error.message}", f"Names it may use: {known}."
        ) from error
    except CrushpyError:
        raise
    except RecursionError as error:  # its own message varies
        text = f"{origin}{_line(error)}: RecursionError: a macro calls itself without end"
        raise TemplateProblem(text, _HINT) from error
    except Exception as error:  # a template can raise anything
        raise TemplateProblem(f"{origin}{_line(error)}: {type(error).__name__}: {error}", _HINT) from error


def _environment() -> "SandboxedEnvironment":
    import jinja2
    from jinja2.sandbox import SandboxedEnvironment

    class Bounded(SandboxedEnvironment):
        """Limits the memory that an expression can use."""

        intercepted_binops = frozenset(("*", "**"))

        def call_binop(self, context: object, operator: str, left: Any, right: Any) -> Any:
            for operand, other in ((left, right), (right, left)):
                times = other if isinstance(other, int) else 1
                if hasattr(operand, "__len__") and len(operand) * times > MAX_RENDERED_CHARS:
                    raise ValueError("the text would be too long")
            if operator == "**" and isinstance(right, int | float) and abs(right) > 1_000:
                raise ValueError("the number would be too large")
            return left * right if operator == "*" else left**right

    return Bounded(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)


def _line(error: BaseException) -> str:
    """The line in the template, to append to its name."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    numbers = [frame.lineno for frame in frames if frame.filename == "<template>"]
    return f", line {numbers[-1]}" if numbers else ""


_HINT = "Fix the file, or remove it to use the built-in one."
