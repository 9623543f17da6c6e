"""The tool `skill`: loads instructions that users wrote for a kind of work."""

from collections.abc import Sequence

from crushpy.core.access import ToolAccess
from crushpy.core.messages import Json
from crushpy.tools.base import Args, CallContext, Outcome, Tool

SKILL_KEY = "skill:"


class SkillArgs(Args, frozen=True):
    name: str


class SkillTool(Tool[SkillArgs]):
    name = "skill"
    args = SkillArgs
    access = ToolAccess("none")
    in_reading_tasks = True

    def __init__(self, names: Sequence[str] = ()) -> None:
        """`names`: the skills in the listing of the system prompt."""
        self.names = names

    def parameters(self) -> Json | None:
        """The names are those of the listing, which does not change within a session."""
        name = {"type": "string", "enum": list(self.names)}
        return {"type": "object", "properties": {"name": name}, "required": ["name"]}

    async def run(self, args: SkillArgs, context: CallContext) -> Outcome:
        name, text = context.workspace.skills.load_skill(args.name.strip())
        key = SKILL_KEY + name
        if context.agent.is_loaded(key):
            return Outcome(f"The skill {name} is loaded already: follow the instructions above.")
        return Outcome(text, loaded=(key,))
