"""Commands about conversations: new, resume, session tree, search, export."""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import counted
from crushpy.core.start_options import StartOptions
from crushpy.storage.records import SessionBusy
from crushpy.tui.actions.command_group import CommandGroup, RefusedCommand
from crushpy.tui.actions.context import ContextCommands
from crushpy.tui.screens.choose import Choice
from crushpy.tui.status_presenter import home_relative

EXPORT_FORMATS = {"md": "Markdown", "html": "a page"}
"""The endings of exported files, each with the name of its format; the first is the default."""

if TYPE_CHECKING:
    from crushpy.engine.session.html_page import PageReport

MAX_REDACTION_LINES = 8


class SessionCommands(CommandGroup):
    async def new_conversation(self, argument: str) -> None:
        """Plan mode is kept; edits were allowed only for the previous conversation."""
        planning = self.chat.conversation is not None and self.chat.conversation.approvals.mode == "plan"
        options = self._new_options()
        await self._go_over(msgspec.structs.replace(options, mode="plan") if planning else options)

    async def queue(self, argument: str) -> None:
        self.conversation.submit(argument.strip(), after_turn=True)

    async def sessions(self, argument: str) -> None:
        from crushpy.tui.screens.sessions import SessionsScreen

        await self.resume(await self.show(SessionsScreen(self.conversation.sessions, self.chat.options.cwd)))

    async def resume_last(self, argument: str) -> None:
        conversation = self.conversation
        last = await conversation.sessions.latest(conversation.info.cwd)
        if last is None or last.id == conversation.info.id:
            raise RefusedCommand("There is no later conversation in this folder. /sessions lists all.")
        await self.resume(last.id)

    async def tree(self, argument: str) -> None:
        from crushpy.tui.screens.session_tree import UNDO, SessionTreeScreen

        conversation = self.conversation
        screen = SessionTreeScreen(conversation.sessions, conversation.info.id, conversation.context.replay)
        chosen = await self.show(screen)
        if chosen is not None and chosen.startswith(UNDO):
            await ContextCommands(self.chat).undo_compaction_of(chosen.removeprefix(UNDO))
        else:
            await self.resume(chosen)

    async def search(self, argument: str) -> None:
        """Shows the message that was found in the chat if it is there, otherwise in its session, to read."""
        from crushpy.tui.screens.message_search import SearchScreen
        from crushpy.tui.screens.session_reader import SessionReaderScreen

        conversation = self.conversation
        found = await self.show(SearchScreen(conversation.sessions, self.chat.options.cwd, argument.strip()))
        if found is not None and not self.chat.reveal(found):
            reader = SessionReaderScreen(conversation.sessions, found.session_id, found)
            going_on = await self.show(reader)
            await self.resume(going_on if going_on != conversation.info.id else None)

    async def export(self, argument: str) -> None:
        from crushpy.engine.session.html_page import PageReport

        conversation = self.chat.conversation
        if conversation is None or not conversation.history:
            raise RefusedCommand("There is nothing to export yet.")
        folder, name = Path(self.chat.options.cwd), f"crushpy-{conversation.info.id}"
        usual = [f"{name}.{ending}" for ending in EXPORT_FORMATS]
        wanted = argument.strip() or await self._choose_export(folder, usual)
        if not wanted:
            return
        file = Path(wanted)
        with suppress(RuntimeError):  # no such user: an ordinary name
            file = file.expanduser()
        file = folder / file
        try:
            if file.is_dir():
                inside = file / usual[0]
                typed = inside.relative_to(folder) if inside.is_relative_to(folder) else inside
                raise CrushpyError(f"{file} is a folder. Name a file in it: /export {typed}")
            if file.exists() and not file.is_file():
                raise CrushpyError(f"{file} is not a regular file. Name another one.")
            if file.name not in usual and file.exists():
                keep = Choice("keep", "Keep it", "nothing is written")
                replace = Choice("replace", "Replace it", "its content is lost")
                title = f"{file.name} already exists"
                if await self.choose(title, [keep, replace], str(file)) != "replace":
                    self.say(f"Nothing was written: {file} is unchanged. Name another file.")
                    return
            page = PageReport() if file.suffix == ".html" else None
            count = await conversation.sessions.export(
                conversation.info.id,
                file,
                "html" if page else "markdown",
                page=page,
                approve=partial(self._approve_page, page) if page else None,
            )
        except FileNotFoundError:
            raise CrushpyError(
                f"{file.parent} does not exist. Create it first, or name a file elsewhere."
            ) from None
        except OSError as error:
            raise CrushpyError(f"{file} cannot be written: {error.strerror}. Name another file.") from None
        self.say(f"{counted(count, 'message')} exported to {file}. Secrets are redacted.")

    async def _approve_page(self, page: "PageReport") -> None:
        *lines, total = page.lines
        shown = lines if len(lines) <= MAX_REDACTION_LINES else [*lines[:MAX_REDACTION_LINES], "..."]
        title = f"Write the page? {total} All are listed on the page."
        choices = [Choice("write", "Write it"), Choice("cancel", "Cancel", "nothing is written")]
        if await self.choose(title, choices, "\n".join(shown)) != "write":
            raise RefusedCommand("Nothing was written.")

    async def _choose_export(self, folder: Path, names: list[str]) -> str | None:
        """Asks where to write: by default outside the project, so that nothing of it is committed."""
        places = {Path.home(): "your home folder", folder: "this folder"}
        choices = [
            Choice(str(place / name), home_relative(place / name), f"{form}, in {where}")
            for name, form in zip(names, EXPORT_FORMATS.values(), strict=True)
            for place, where in places.items()
        ]
        return await self.choose("Export to which file?", choices, "/export FILE names another one")

    async def reopen(self) -> None:
        """Opens this conversation again, with the settings and extensions that apply now."""
        conversation, options = self.conversation, self._new_options()
        approvals, info = conversation.approvals, conversation.info
        same = {"session": info.id} if conversation.history else {"compaction": info.compaction}
        mode, model = approvals.mode, "" if conversation.history else info.model
        await self._go_over(
            msgspec.structs.replace(options, yolo=approvals.yolo, mode=mode, model=model, **same)
        )

    # --- switching to another conversation ---------------------------------------------------------------

    async def resume(self, session_id: str | None) -> None:
        """Continues in a session, if one was chosen."""
        if session_id:
            await self._go_over(msgspec.structs.replace(self._new_options(), session=session_id, model=""))

    async def fork_here(self, message_id: str) -> None:
        """Continues in a fork that ends at a message of the open conversation."""
        conversation = self.chat.conversation
        if conversation is None or not message_id:
            raise RefusedCommand("This message is not stored, so no fork can end here.")
        self.require_idle()
        before = conversation.info.id
        made = await conversation.sessions.fork(before, message_id)
        await self.resume(made.id)
        self.say(f"This is a fork that ends here. Session {before} and your files are unchanged (/tree).")

    async def start_elsewhere(self, options: StartOptions, error: SessionBusy) -> None:
        """Asks about a conversation that is in use at start-up, with a new one in the meantime."""
        await self._go_over(self._new_options())
        await self._ask_elsewhere(options, error)

    def _new_options(self) -> StartOptions:
        of_this_start = ("prompt", "pick", "session", "resume_latest", "fork", "at")
        return msgspec.structs.replace(
            self.chat.options, **{name: getattr(StartOptions(), name) for name in of_this_start}
        )

    async def _go_over(self, options: StartOptions) -> None:
        """Switches to another conversation, unless this one is busy. Queued prompts return to the prompt."""
        chat = self.chat
        if chat.own is not None and chat.own.running:
            raise RefusedCommand("A command of yours is running. Press Esc to stop it first.")
        self.require_idle()
        queued = chat.conversation.prompts.queue if chat.conversation is not None else ()
        try:
            await chat.replace_conversation(options)
        except SessionBusy as error:
            await self._ask_elsewhere(options, error)
            return
        for prompt in reversed(queued):
            chat.take_back(prompt)
        if queued:
            which = "A queued prompt was" if len(queued) == 1 else f"{len(queued)} queued prompts were"
            self.say(f"{which} not sent. The text is in the prompt now.", warning=True)

    async def _ask_elsewhere(self, options: StartOptions, error: SessionBusy) -> None:
        """Offers to read or fork a conversation that another process holds. This one stays open meanwhile."""
        choices = [
            Choice("read", "Read it", "nothing is changed"),
            Choice("fork", "Fork it", "continue in a fork of your own"),
            Choice("cancel", "Cancel", "stay here"),
        ]
        title = "This conversation is open elsewhere"
        chosen = await self.choose(title, choices, f"{error}".partition("\n")[0])
        if chosen == "fork":
            await self._go_over(msgspec.structs.replace(options, fork=True))
        elif chosen == "read" and self.chat.conversation is not None:
            from crushpy.tui.screens.session_reader import SessionReaderScreen

            reader = SessionReaderScreen(self.chat.conversation.sessions, error.session_id)
            await self.resume(await self.show(reader))
