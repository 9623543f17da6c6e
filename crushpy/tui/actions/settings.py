"""Commands about settings: model, effort, permissions, theme, trust."""

from pathlib import Path

from crushpy.core.access import MODES, Mode
from crushpy.core.errors import CrushpyError
from crushpy.security.sanitize import one_line
from crushpy.tui.actions.host import CommandHost, performs
from crushpy.tui.screens.choose import Choice, ChooseScreen

OWN = "default"
ALWAYS = "always"
"""Behind a model's name: for conversations to come too."""
EFFORTS = (OWN, "low", "medium", "high")


@performs("switch_model")
async def switch_model(chat: CommandHost, argument: str) -> None:
    conversation = chat.conversation
    if conversation is None:
        return
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
    try:
        await conversation.select_model(name, for_all=for_all)
    except CrushpyError as error:
        chat.say(str(error), warning=True)
        return
    chat.status.refresh()
    scope = (
        "in this conversation and in new ones"
        if for_all
        else f"in this conversation. /model {name} {ALWAYS} chooses it for new ones too"
    )
    chat.say(f"Model: {name}, from the next request on, {scope}.")


@performs("effort")
async def choose_effort(chat: CommandHost, argument: str) -> None:
    conversation = chat.conversation
    if conversation is None:
        return
    chosen: str | None = argument.strip().lower()
    if not chosen:
        current = conversation.settings.effort
        choices = [Choice(name, name.capitalize(), current=name == (current or OWN)) for name in EFFORTS]
        chosen = await chat.show(ChooseScreen("Thinking Effort", choices))
    if chosen is None:
        return
    if chosen not in EFFORTS:
        chat.say(f"{chosen!r} is no effort; there are {', '.join(EFFORTS)}.", warning=True)
        return
    conversation.select_effort("" if chosen == OWN else chosen)
    chat.say(f"Thinking effort: {chosen}.")


@performs("switch_mode")
async def switch_mode(chat: CommandHost, argument: str) -> None:
    """The next mode, or the one that is named."""
    conversation = chat.conversation
    if conversation is None:
        return
    named = argument.strip().lower()
    following = MODES[(MODES.index(conversation.mode) + 1) % len(MODES)]
    wanted: Mode | None = next((mode for mode in MODES if mode == named), None) if named else following
    if wanted is None:
        chat.say(f"{named!r} is no mode; there are {', '.join(MODES)}.", warning=True)
        return
    await conversation.select_mode(wanted)


@performs("toggle_yolo")
async def toggle_yolo(chat: CommandHost, argument: str) -> None:
    if chat.conversation is None:
        return
    on = chat.conversation.toggle_yolo()
    chat.status.set_yolo(on)
    chat.say("Yolo: everything that is not denied runs without asking." if on else "crushpy asks again.")


@performs("theme")
async def choose_theme(chat: CommandHost, argument: str) -> None:
    app = chat.running_app
    name: str | None = argument.strip()
    if not name:
        choices = [Choice(one, one, current=one == app.theme) for one in sorted(app.available_themes)]
        name = await chat.show(ChooseScreen("Theme", choices))
    if not name:
        return
    if name not in app.available_themes:
        chat.say(f"There is no theme {name!r}.", warning=True)
        return
    app.theme = name
    if chat.conversation is not None:
        chat.conversation.save_choice("theme", name)


@performs("connect")
async def connect_model(chat: CommandHost, argument: str) -> None:
    if chat.conversation is None:
        return
    from crushpy.tui.screens.connect import ConnectScreen

    model = await chat.show(ConnectScreen(chat.conversation.settings, argument.strip()))
    if model:
        first = not chat.conversation.settings.model  # whoever connects a first model means it for good
        await switch_model(chat, f"{model} {ALWAYS}" if first else model)


@performs("trust")
async def trust_this_project(chat: CommandHost, argument: str) -> None:
    from crushpy.tui.engine_access import brought_by_project, trust_project

    folder = Path(chat.options.cwd)
    root, lines = brought_by_project(folder)
    chat.say(f"{one_line(root)} brings\n" + "\n".join(lines))
    choices = [Choice("yes", "Trust it: its settings and templates count"), Choice("no", "Leave it")]
    if await chat.show(ChooseScreen("Trust This Project", choices)) == "yes":
        chat.say(trust_project(folder))
