"""Commands about the app itself: help, copy, fold, leave."""

import msgspec

from crushpy.tui.actions.host import CommandHost, performs


@performs("help")
async def show_help(chat: CommandHost, argument: str) -> None:
    from crushpy.tui.screens.help import HelpScreen

    keys = msgspec.structs.asdict(chat.conversation.settings.keys) if chat.conversation else {}
    await chat.show(HelpScreen(keys=keys))


@performs("glossary")
async def show_words(chat: CommandHost, argument: str) -> None:
    from crushpy.tui.screens.glossary import GlossaryScreen

    await chat.show(GlossaryScreen())


@performs("copy_reply")
async def copy_last_reply(chat: CommandHost, argument: str) -> None:
    history = chat.conversation.history if chat.conversation else ()
    reply = next(
        (one.text for one in reversed(history) if one.role == "assistant" and one.says_something), ""
    )
    if not reply:
        chat.say("There is no reply to copy yet.", warning=True)
        return
    await chat.copy(reply)


@performs("fold_all")
async def fold_or_unfold_all(chat: CommandHost, argument: str) -> None:
    chat.folded = not chat.folded
    chat.transcript.fold_all(chat.folded)


@performs("redraw")
async def redraw(chat: CommandHost, argument: str) -> None:
    """Wipes the terminal and draws everything anew."""
    from crushpy.tui.terminal.raw_mode import WIPE

    app = chat.running_app
    if app._driver is not None:  # pyright: ignore[reportPrivateUsage]
        app._driver.write(WIPE)  # pyright: ignore[reportPrivateUsage]
    app.screen.refresh()


@performs("quit")
async def quit_app(chat: CommandHost, argument: str) -> None:
    await chat.leave()


@performs("todos")
async def open_or_fold_todos(chat: CommandHost, argument: str) -> None:
    if not chat.todos.toggle():
        chat.say("Nothing is left to do.")
