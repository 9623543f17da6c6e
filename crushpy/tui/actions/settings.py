"""Commands about settings: model, effort, permissions, theme, trust."""

from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.core.access import MODES, Mode
from crushpy.security.sanitize import one_line
from crushpy.tui.actions.action_registry import performs
from crushpy.tui.screens.choose import Choice, ChooseScreen
from crushpy.tui.textual_adapter import app_of

if TYPE_CHECKING:
    from crushpy.tui.screens.chat_host import ChatHost

DEFAULT_EFFORT = "default"
ALWAYS = "always"
"""After a model's name: also for new conversations."""
EFFORTS = (DEFAULT_EFFORT, "low", "medium", "high")


@performs("switch_model")
async def switch_model(chat: "ChatHost", argument: str) -> None:
    conversation = chat.open_conversation
    words = argument.split()
    for_all = ALWAYS in words
    name: str | None = " ".join(word for word in words if word != ALWAYS)
    if for_all and not name:
        name = conversation.info.model
    if not name:
        from crushpy.tui.screens.models import ModelsScreen

        name = await chat.show(
            ModelsScreen(conversation.settings, conversation.info.model, conversation.select_effort)
        )
    if not name:
        return
    await conversation.select_model(name, for_all=for_all)
    chat.status.refresh()
    scope = (
        "in this conversation and in new ones"
        if for_all
        else f"in this conversation. /model {name} {ALWAYS} selects it for new ones as well"
    )
    chat.say(f"Model: {name}, from the next request, {scope}.")


@performs("effort")
async def choose_effort(chat: "ChatHost", argument: str) -> None:
    conversation = chat.open_conversation
    chosen: str | None = argument.strip().lower()
    if not chosen:
        current = conversation.settings.effort
        choices = [
            Choice(name, name.capitalize(), current=name == (current or DEFAULT_EFFORT)) for name in EFFORTS
        ]
        chosen = await chat.show(ChooseScreen("Thinking Effort", choices))
    if chosen is None:
        return
    if chosen not in EFFORTS:
        chat.say(f"{chosen!r} is not a thinking effort. Choose one of {', '.join(EFFORTS)}.", warning=True)
        return
    conversation.select_effort("" if chosen == DEFAULT_EFFORT else chosen)
    chat.say(f"Thinking effort: {chosen}.")


@performs("switch_mode")
async def switch_mode(chat: "ChatHost", argument: str) -> None:
    """Switches to the next mode, or to the named one."""
    conversation = chat.open_conversation
    named = argument.strip().lower()
    following = MODES[(MODES.index(conversation.mode) + 1) % len(MODES)]
    wanted: Mode | None = next((mode for mode in MODES if mode == named), None) if named else following
    if wanted is None:
        chat.say(f"{named!r} is not a mode. Choose one of {', '.join(MODES)}.", warning=True)
        return
    await conversation.select_mode(wanted)


@performs("toggle_yolo")
async def toggle_yolo(chat: "ChatHost", argument: str) -> None:
    on = chat.open_conversation.toggle_yolo()
    chat.status.set_yolo(on)
    chat.say(
        "Yolo is on: everything that is not denied runs without asking."
        if on
        else "Yolo is off: crushpy asks again."
    )


@performs("theme")
async def choose_theme(chat: "ChatHost", argument: str) -> None:
    app = app_of(chat)
    name: str | None = argument.strip()
    if not name:
        choices = [Choice(one, one, current=one == app.theme) for one in sorted(app.available_themes)]
        name = await chat.show(ChooseScreen("Theme", choices))
    if not name:
        return
    if name not in app.available_themes:
        chat.say(f"There is no theme {name!r}. /theme lists all themes.", warning=True)
        return
    app.theme = name
    if chat.conversation is not None:
        chat.conversation.save_choice("theme", name)


@performs("connect")
async def connect_model(chat: "ChatHost", argument: str) -> None:
    from crushpy.tui.screens.connect import ConnectScreen

    settings = chat.open_conversation.settings
    model = await chat.show(ConnectScreen(settings, argument.strip()))
    if model:
        first = not settings.model  # the first model is meant for new conversations as well
        await switch_model(chat, f"{model} {ALWAYS}" if first else model)


@performs("trust")
async def trust_this_project(chat: "ChatHost", argument: str) -> None:
    from crushpy.core.paths import Paths, project_root
    from crushpy.permissions.trust import add_trusted, list_project_files

    root = project_root(Path(chat.options.cwd))
    chat.say(f"{one_line(str(root))} provides\n" + "\n".join(list_project_files(root)))
    choices = [Choice("yes", "Trust it: use its settings and templates"), Choice("no", "Cancel")]
    if await chat.show(ChooseScreen("Trust This Project", choices)) == "yes":
        add_trusted(Paths(), root)
        chat.say(f"Trusted: {root}. Its settings and templates apply from the next start.")
