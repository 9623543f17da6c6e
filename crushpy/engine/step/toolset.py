"""The tools as the model sees them: which are offered for a compaction method, and their descriptions."""

from collections.abc import Callable
from functools import partial

from crushpy.core.messages import Json
from crushpy.core.templates import NAMES, Templates
from crushpy.llm.protocol import DeferredTool, ToolSpec
from crushpy.tools.base import AnyTool
from crushpy.tools.registry import schema

NEW_SESSION = "new_session"
LLM_TOOLS = ("branch", "return_to_parent", NEW_SESSION)
"""Offered only in `llm`, all of them, so that the tools stay the same. They end or open sessions: the engine
executes them, last in their batch."""


class Toolset:
    """Descriptions are read once and stay byte-identical; only `new_session` follows its templates."""

    def __init__(
        self, tools: tuple[AnyTool, ...], templates: Templates, *, on_edit: Callable[[], None] = lambda: None
    ) -> None:
        """`on_edit` is called when a template that is part of every request was edited."""
        self.tools = tools
        self._templates = templates
        self._unchanging: tuple[ToolSpec, ...] | None = None
        self._of_branches: tuple[ToolSpec, ...] = ()
        self._last_text = ""
        self._on_edit = on_edit

    def only(self, wanted: Callable[[AnyTool], bool]) -> "Toolset":
        return Toolset(tuple(tool for tool in self.tools if wanted(tool)), self._templates)

    def specs(self, terms: Json | None) -> tuple[ToolSpec, ...]:
        """The tools offered to an agent; if there are terms, those of `llm` come last."""
        if self._unchanging is None:
            self._unchanging = tuple(self._spec(tool) for tool in self.tools if tool.name not in LLM_TOOLS)
            self._of_branches = tuple(self._spec(tool) for tool in self.tools if tool.name in LLM_TOOLS[:-1])
        tool = next((tool for tool in self.tools if tool.name == NEW_SESSION), None)
        if terms is None or tool is None:
            return self._unchanging
        return (*self._unchanging, *self._of_branches, self._new_session(tool, terms))

    def _spec(self, tool: AnyTool) -> ToolSpec:
        text = tool.description(partial(self._templates.render, f"tools/{tool.name}"))
        parameters = tool.parameters() or schema(tool.args)
        if tool.deferred_by:
            return DeferredTool(tool.name, text, parameters, tool.deferred_by)
        return ToolSpec(tool.name, text, parameters)

    def _new_session(self, tool: AnyTool, terms: Json) -> ToolSpec:
        text = self._templates.render(NEW_SESSION, **terms, sections=self._sections())
        if self._last_text and text != self._last_text:
            self._on_edit()
        self._last_text = text
        return ToolSpec(tool.name, text, schema(tool.args))

    def _sections(self) -> str:
        lines = self._templates.render("summary", **{**NAMES["summary"], "method": "llm"}).splitlines()
        first = next((number for number, line in enumerate(lines) if line.startswith("#")), len(lines))
        return "\n".join(line for line in lines[first:] if line.strip())
