"""The skills, commands and sub-agents of a folder. The code that reads them is imported if there are any."""

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.context.tags import element
from crushpy.core.app_commands import by_slash
from crushpy.core.defaults import DEFAULT_WINDOW
from crushpy.core.extension_file import FileKind
from crushpy.core.paths import Paths, extension_folders
from crushpy.engine.agents.task_spec import AgentDefinition
from crushpy.tools.base import Skills
from crushpy.tools.errors import ToolError
from crushpy.tools.skill import SkillTool
from crushpy.util.lazy_pattern import lazy_pattern

if TYPE_CHECKING:
    from crushpy.extensions.discovery import Extension, Place

KINDS: tuple[FileKind, ...] = ("skills", "commands", "agents")
_LISTING = lazy_pattern(r"^<skills>\n(.*?)^</skills>$", re.MULTILINE | re.DOTALL)
_LISTED = lazy_pattern(r"^- ([^\s:]+(?::[^\s:]+)?)(?::|$)", re.MULTILINE)


class UserExtensions(Skills):
    """`root`: of the project, if it is trusted. `own`: whether the user's and the plugins' are used as well.
    Files are read each time they are asked for."""

    def __init__(self, paths: Paths, root: Path | None, *, own: bool = True) -> None:
        self._paths, self._root, self._own = paths, root, own

    @cached_property
    def _kinds(self) -> frozenset[FileKind]:
        """The kinds of which there may be any; reads no file."""
        if self._paths.plugins.is_dir():
            return frozenset(KINDS)
        project, user = extension_folders(self._paths, self._root)
        return frozenset(
            kind for kind in KINDS if any((folder / kind).is_dir() for folder in (*project, *user))
        )

    @cached_property
    def places(self) -> "tuple[Place, ...]":
        from crushpy.extensions.discovery import extension_places

        found = extension_places(self._paths, self._root)
        return found if self._own else tuple(place for place in found if place.origin == "project")

    def find(self, kind: FileKind) -> "list[Extension]":
        """Every file of a kind, loaded or refused."""
        if kind not in self._kinds:
            return []
        from crushpy.extensions.discovery import find_extensions

        return find_extensions(self.places, kind)

    def use(self, kind: FileKind) -> "dict[str, Extension]":
        """Those that were not refused, by name."""
        return {extension.name: extension for extension in self.find(kind) if extension.status != "refused"}

    def listing(self, window: Callable[[], int | None]) -> str:
        """The part of the system prompt that names the skills and sub-agents; empty if there are none."""
        listed = {"skills": self._offered(), "agents": list(self.use("agents").values())}
        if not any(listed.values()):
            return ""
        from crushpy.extensions.skill_texts import listing_text

        room = window() or DEFAULT_WINDOW
        blocks = [element(kind, listing_text(found, room)) for kind, found in listed.items() if found]
        return "\n\n# Skills and agents\n" + "\n".join(blocks)

    def _offered(self) -> "list[Extension]":
        skills = self.use("skills").values()
        return [skill for skill in skills if not skill.document.flag("disable-model-invocation")]

    def load_skill(self, name: str) -> tuple[str, str]:
        skills = {skill.name: skill for skill in self._offered()}
        found = skills.get(name) or skills.get(name.rpartition(":")[2])
        if found is None:
            names = ", ".join(skills) or "none"
            raise ToolError(f"There is no skill {name!r}. There are: {names}.")
        from crushpy.extensions.skill_texts import skill_text

        return found.name, skill_text(found)

    def new_skills(self, known: str) -> str:
        """`known`: the system prompt and earlier notes."""
        listed = set(_LISTED.findall(known))
        new = [skill for skill in self._offered() if skill.name not in listed]
        return "\n".join(f"- {skill.name}: {skill.description}" for skill in new)

    def commands(self) -> "dict[str, Extension]":
        """What the user can call by `/name`: the commands, and the skills that are not named like another."""
        skills = {
            name: skill
            for name, skill in self.use("skills").items()
            if skill.document.text("user-invocable") != "false" and by_slash(name) is None
        }
        return skills | self.use("commands")

    def text(self, command: "Extension") -> str:
        """What a command tells the agent, before it is expanded."""
        from crushpy.extensions.skill_texts import skill_text

        return skill_text(command) if command.kind == "skills" else command.body

    def agent(self, name: str) -> AgentDefinition:
        """The definition of a sub-agent. Raises ToolError."""
        agents = self.use("agents")
        if name not in agents:
            names = ", ".join(agents) or "none"
            raise ToolError(f"There is no agent {name!r}. There are: {names}. Or leave agent out.")
        from crushpy.extensions.agent_files import agent_definition

        return agent_definition(agents[name], self.load_skill)

    def readable_folders(self) -> list[Path]:
        """The folders whose files may be read without a question, and are visible to commands."""
        if "skills" not in self._kinds:
            return []
        plugins = [place.folder for place in self.places if place.plugin]
        sources = [source for place in self.places for source in place.sources("skills")]
        return [*plugins, *(source for source in sources if source.is_dir())]


def skill_tools(system: str) -> Sequence[SkillTool]:
    """The tool for the skills in the listing of a system prompt; none if it has no listing."""
    found = _LISTING.search(system)
    return (SkillTool(_LISTED.findall(found[1])),) if found else ()
