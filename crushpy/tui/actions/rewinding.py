"""Commands that undo: changes to files, and the conversation back to one of its prompts."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from crushpy.core.messages import counted
from crushpy.tui.actions.command_group import CommandGroup, RefusedCommand
from crushpy.tui.actions.sessions import SessionCommands
from crushpy.tui.screens.choose import Choice

if TYPE_CHECKING:
    from crushpy.engine.rewind.rewinder import FileView, RewindOutcome

WHICH_UNDO = "/undo restores files. To undo the compaction before this, run /undo-compaction."


class RewindCommands(CommandGroup):
    async def undo_files(self, argument: str) -> None:
        """Undoes the last turn's changes to files, all of them or some."""
        self.require_idle()
        if self.conversation.context.just_compacted:
            self.say(WHICH_UNDO)
        await self._put_back(argument, again=False)

    async def redo_files(self, argument: str) -> None:
        self.require_idle()
        await self._put_back(argument, again=True)

    async def _put_back(self, argument: str, *, again: bool) -> None:
        files, session_id = self.conversation.files, self.conversation.info.id
        plan = files.rewinder.plan_redo if again else files.rewinder.plan_undo
        planned = await plan(session_id) if self.conversation.history else None
        if planned is None:
            what = "redo." if again else "undo: no turn changed a file."
            self.say(f"There is nothing to {what}")
            return
        wanted = argument.strip()
        if not wanted:
            title = "Redo what was undone" if again else "Undo the last turn's changes"
            chosen = await self._choose_files(title, planned.views)
            if chosen is None:
                return
            planned = planned.only(chosen)
        elif wanted != "all":
            names = {view.path for view in planned.views if view.path == wanted.removeprefix("./")}
            if not names:
                there = ", ".join(view.path for view in planned.views)
                raise RefusedCommand(f"{wanted} would not be restored. These would: {there}.")
            planned = planned.only(names)
        outcome = await files.put_back(planned)
        if outcome is not None:
            self._tell(outcome, "changed again" if again else "restored")

    async def _choose_files(
        self, title: str, views: "tuple[FileView, ...]", *, always: bool = False
    ) -> Collection[str] | None:
        from crushpy.tui.screens.rewind import RestorationScreen

        palette = self.chat.transcript.current_palette
        return await self.show(RestorationScreen(title, views, palette, always=always))

    async def rewind(self, argument: str) -> None:
        """Goes back to one of the user's prompts, which returns to the editor."""
        from crushpy.tui.screens.rewind import RewindScreen

        self.require_idle()
        conversation = self.conversation
        rewinder, session_id = conversation.files.rewinder, conversation.info.id
        points = await rewinder.points(session_id) if conversation.history else []
        if not points:
            self.say("There is no prompt to go back to yet.")
            return
        chosen = await self.show(RewindScreen(points, conversation.info.cwd, rewinder.views))
        if chosen is None:
            return
        choices = [
            Choice("both", "Conversation and files"),
            Choice("conversation", "Conversation only", "what is on disk stays"),
            Choice("files", "Files only", "the conversation stays as it is"),
        ]
        what = await self.choose("What to restore?", choices)
        if what is None:
            return
        target = await rewinder.target(session_id, chosen)
        planned = await rewinder.plan_rewind(session_id, target) if what != "conversation" else None
        if planned is not None and (planned.views or what == "files"):
            title = f"Restore files to before: {target.message.text[:60]}"
            paths = await self._choose_files(title, planned.views, always=what == "both")
            if paths is None:
                return
            planned = planned.only(paths)
        self.require_idle()
        if self.chat.conversation is not conversation:
            return
        if what == "files":
            assert planned is not None
            outcome = await conversation.files.put_back(planned)
        else:
            outcome = await conversation.files.rewind(target, planned)
        if outcome is None:
            return
        if outcome.session is not None:
            await SessionCommands(self.chat).resume(outcome.session.id)
            self.chat.take_back(target.message)
            self.say(f"This is a fork that ends here; session {session_id} is unchanged (/tree).")
        if outcome.restored or outcome.conflicts:
            self._tell(outcome, "restored")

    def _tell(self, outcome: "RewindOutcome", done: str) -> None:
        count = len(outcome.restored)
        told = f"{counted(count, 'file')} {done}." if count else "No file was changed."
        skipped = "".join(f"\nSkipped: {conflict.path}: {conflict.reason}." for conflict in outcome.conflicts)
        self.say(told + skipped, warning=bool(outcome.conflicts))
