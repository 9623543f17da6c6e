"""The tools and the instructions as the model sees them: for a compaction method, and for a small window."""

import re
from collections.abc import Callable
from functools import partial

from crushpy.core.messages import Json
from crushpy.core.templates import NAMES, Templates
from crushpy.engine.environment import HEADING
from crushpy.llm.protocol import DeferredTool, ToolSpec
from crushpy.settings.schema import Profile
from crushpy.tools.base import AnyTool
from crushpy.tools.registry import schema

NEW_SESSION = "new_session"
LLM_TOOLS = ("branch", "return_to_parent", NEW_SESSION)
"""Offered only in `llm`, all of them, so that the tools stay the same. They end or open sessions: the engine
executes them, last in their batch."""

SHORT_TOOLS = ("view", "grep", "edit", "write", "bash", "todos", "recall", NEW_SESSION)
"""The tools that a small profile describes shortly, in `templates/small/`."""
HIDDEN_ARGUMENTS = {
    "grep": ("include",),
    "edit": ("replace_all",),
    "bash": ("background", "needs", "timeout"),
    NEW_SESSION: ("pin",),
}
"""Arguments that they accept without naming them."""
_NOT_IN_SMALL = frozenset(
    ("ls", "glob", "multiedit", "job_output", "job_kill", "fetch", "task", "branch", "return_to_parent")
)
_OF_EXTENSIONS = frozenset(("mcp", "skill", "lsp"))
_SKILLS = re.compile(r"(?<!\n)\n*^<skills>\n.*?^</skills>$", re.DOTALL | re.MULTILINE)


class Toolset:
    """Descriptions are read once and stay byte-identical; only `new_session` follows its templates."""

    def __init__(
        self, tools: tuple[AnyTool, ...], templates: Templates, *, on_edit: Callable[[], None] = lambda: None
    ) -> None:
        """`on_edit` is called when a template that is part of every request was edited."""
        self.tools = tools
        self._templates = templates
        self._unchanging: dict[Profile, list[ToolSpec]] = {}
        self._last_text = ""
        self._on_edit = on_edit

    def only(self, wanted: Callable[[AnyTool], bool]) -> "Toolset":
        return Toolset(tuple(tool for tool in self.tools if wanted(tool)), self._templates)

    def specs(self, terms: Json | None, profile: Profile) -> tuple[ToolSpec, ...]:
        """The tools offered to an agent; if there are terms, those of `llm` come last."""
        if profile not in self._unchanging:
            offered = [tool for tool in self.tools if tool.name != NEW_SESSION and _offers(profile, tool)]
            offered.sort(key=lambda tool: tool.name in LLM_TOOLS)
            self._unchanging[profile] = [self._spec(tool, profile) for tool in offered]
        found = self._unchanging[profile]
        tool = next((tool for tool in self.tools if tool.name == NEW_SESSION), None)
        if terms is None or tool is None:
            return tuple(spec for spec in found if spec.name not in LLM_TOOLS)
        return (*found, self._spec(tool, profile, terms))

    def instructions(self, system: str, profile: Profile) -> str:
        """The system prompt of a session for a model with this profile."""
        _, heading, environment = system.partition(HEADING)
        if profile == "full" or not heading:
            return system
        environment = environment if profile == "extended" else _SKILLS.sub("", environment)
        return f"{self._templates.render('small/system')}\n\n{heading}{environment}"

    def _spec(self, tool: AnyTool, profile: Profile, terms: Json | None = None) -> ToolSpec:
        """`terms`: for `new_session`."""
        parameters, folder = tool.parameters() or schema(tool.args), "tools"
        if profile != "full" and tool.name in SHORT_TOOLS:
            hidden, folder = HIDDEN_ARGUMENTS.get(tool.name, ()), "small"
            shown = {name: field for name, field in parameters["properties"].items() if name not in hidden}
            parameters = parameters | {"properties": shown}
        if terms is not None:
            text = self._render_new_session("" if folder == "tools" else "small/", terms)
        else:
            text = tool.description(partial(self._templates.render, f"{folder}/{tool.name}"))
        if tool.deferred_by:
            return DeferredTool(tool.name, text, parameters, tool.deferred_by)
        return ToolSpec(tool.name, text, parameters)

    def _render_new_session(self, folder: str, terms: Json) -> str:
        text = self._templates.render(f"{folder}{NEW_SESSION}", **terms, sections=self._sections())
        if self._last_text and text != self._last_text:
            self._on_edit()
        self._last_text = text
        return text

    def _sections(self) -> str:
        lines = self._templates.render("summary", **{**NAMES["summary"], "method": "llm"}).splitlines()
        first = next((number for number, line in enumerate(lines) if line.startswith("#")), len(lines))
        return "\n".join(line for line in lines[first:] if line.strip())


def _offers(profile: Profile, tool: AnyTool) -> bool:
    """Whether a model with this profile gets the tool. Functions of an SDK caller are always offered."""
    if profile != "full" and (tool.name in _OF_EXTENSIONS or tool.deferred_by):
        return profile == "extended"
    return profile == "full" or tool.name not in _NOT_IN_SMALL
