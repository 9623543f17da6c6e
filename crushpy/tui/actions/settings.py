"""Commands about settings: model, effort, permissions, theme, trust."""

from pathlib import Path

from crushpy.core.access import MODES, Mode
from crushpy.security.sanitize import one_line
from crushpy.tui.actions.command_group import CommandGroup, RefusedCommand
from crushpy.tui.screens.choose import Choice
from crushpy.tui.textual_adapter import app_of

DEFAULT_EFFORT = "default"
ALWAYS = "always"
"""After a model's name: also for new conversations."""
EFFORTS = (DEFAULT_EFFORT, "low", "medium", "high")


class SettingsCommands(CommandGroup):
    async def switch_model(self, argument: str) -> None:
        conversation, words = self.conversation, argument.split()
        for_all = ALWAYS in words
        name: str | None = " ".join(word for word in words if word != ALWAYS)
        if for_all and not name:
            name = conversation.info.model
        if not name:
            from crushpy.tui.screens.models import ModelsScreen

            name = await self.show(
                ModelsScreen(conversation.settings, conversation.info.model, conversation.select_effort)
            )
        if not name:
            return
        await conversation.select_model(name, for_all=for_all)
        self.chat.status.refresh()
        scope = f"in this conversation. /model {name} {ALWAYS} selects it for new ones as well"
        scope = "in this conversation and in new ones" if for_all else scope
        self.say(f"Model: {name}, from the next request, {scope}.")

    async def effort(self, argument: str) -> None:
        chosen: str | None = argument.strip().lower()
        if not chosen:
            current = self.conversation.settings.effort or DEFAULT_EFFORT
            choices = [Choice(name, name.capitalize(), current=name == current) for name in EFFORTS]
            chosen = await self.choose("Thinking Effort", choices)
        if chosen is None:
            return
        if chosen not in EFFORTS:
            raise RefusedCommand(f"{chosen!r} is not a thinking effort. Choose one of {', '.join(EFFORTS)}.")
        self.conversation.select_effort("" if chosen == DEFAULT_EFFORT else chosen)
        self.say(f"Thinking effort: {chosen}.")

    async def switch_mode(self, argument: str) -> None:
        following = MODES[(MODES.index(self.conversation.mode) + 1) % len(MODES)]
        named = argument.strip().lower() or following
        wanted: Mode | None = next((mode for mode in MODES if mode == named), None)
        if wanted is None:
            raise RefusedCommand(f"{named!r} is not a mode. Choose one of {', '.join(MODES)}.")
        await self.conversation.select_mode(wanted)

    async def toggle_yolo(self, argument: str) -> None:
        on = self.conversation.toggle_yolo()
        self.chat.chip.yolo = on
        what = "on: everything that is not denied runs without asking" if on else "off: crushpy asks again"
        self.say(f"Yolo is {what}.")

    async def theme(self, argument: str) -> None:
        app, name = app_of(self.chat), argument.strip()
        if not name:
            choices = [Choice(one, one, current=one == app.theme) for one in sorted(app.available_themes)]
            name = await self.choose("Theme", choices)
        if not name:
            return
        if name not in app.available_themes:
            raise RefusedCommand(f"There is no theme {name!r}. /theme lists all themes.")
        app.theme = name
        if self.chat.conversation is not None:
            self.chat.conversation.save_choice("theme", name)

    async def connect(self, argument: str) -> None:
        from crushpy.tui.screens.connect import ConnectScreen

        settings = self.conversation.settings
        model = await self.show(ConnectScreen(settings, argument.strip()))
        if model:
            first = not settings.model  # the first model is meant for new conversations as well
            await self.switch_model(f"{model} {ALWAYS}" if first else model)

    async def trust(self, argument: str) -> None:
        from crushpy.core.paths import Paths, project_root
        from crushpy.extensions.hooks.hook_config import accept_hooks
        from crushpy.permissions.trust import add_trusted, list_project_files

        root = project_root(Path(self.chat.options.cwd))
        lines = [*list_project_files(root), *accept_hooks(Paths(), root, only_list=True)]
        self.say(f"{one_line(str(root))} provides\n" + "\n".join(lines))
        choices = [Choice("yes", "Trust it: use what it brings"), Choice("no", "Cancel")]
        if await self.choose("Trust This Project", choices) == "yes":
            add_trusted(Paths(), root)
            accept_hooks(Paths(), root)
            self.say(f"Trusted: {root}. What it brings is used from the next start.")
