"""Commands that undo: changes to files, and the conversation back to one of its prompts."""

from typing import TYPE_CHECKING

from crushpy.core.messages import counted
from crushpy.engine.conversation import Conversation
from crushpy.tui.actions.action_registry import performs
from crushpy.tui.actions.sessions import refuse_while_busy, resume

if TYPE_CHECKING:
    from crushpy.engine.rewind.rewinder import RewindOutcome
    from crushpy.tui.screens.chat_host import ChatHost

WHICH_UNDO = "/undo restores files. To undo the compaction before this, run /undo-boundary."
NOT_COVERED = "Changes by commands to ignored files, to .git and outside this folder are not covered"


@performs("undo_files")
async def undo_changes(chat: "ChatHost", argument: str) -> None:
    """Undoes the last turn's changes to files, all of them or some."""
    conversation = chat.open_conversation
    if refuse_while_busy(chat):
        return
    if conversation.context.just_compacted:
        chat.say(WHICH_UNDO)
    await _put_back(chat, conversation, argument, "Undo the last turn's changes", again=False)


@performs("redo_files")
async def redo_changes(chat: "ChatHost", argument: str) -> None:
    if not refuse_while_busy(chat):
        await _put_back(chat, chat.open_conversation, argument, "Redo what was undone", again=True)


async def _put_back(
    chat: "ChatHost", conversation: Conversation, argument: str, title: str, *, again: bool
) -> None:
    session_id = conversation.info.id
    rewinder = conversation.files.rewinder
    planned = await (rewinder.plan_redo(session_id) if again else rewinder.plan_undo(session_id))
    if planned is None:
        chat.say(
            "There is nothing to redo." if again else "There is nothing to undo: no turn changed a file."
        )
        return
    wanted = argument.strip()
    if not wanted:
        from crushpy.tui.screens.rewind import RestorationScreen

        palette = chat.transcript.current_palette
        chosen = await chat.show(RestorationScreen(title, planned.views, palette, note=NOT_COVERED))
        if chosen is None:
            return
        planned = planned.only(chosen)
    elif wanted != "all":
        names = {view.path for view in planned.views if view.path == wanted.removeprefix("./")}
        if not names:
            there = ", ".join(view.path for view in planned.views)
            chat.say(f"{wanted} would not be restored. These would: {there}.", warning=True)
            return
        planned = planned.only(names)
    outcome = await conversation.files.put_back(planned)
    if outcome is not None:
        chat.say(_told(outcome, again=again), warning=bool(outcome.conflicts))
        chat.status.refresh()


@performs("rewind")
async def rewind_conversation(chat: "ChatHost", argument: str) -> None:
    """Goes back to one of the user's prompts, which returns to the editor."""
    conversation = chat.open_conversation
    if refuse_while_busy(chat):
        return
    from crushpy.tui.screens.choose import Choice, ChooseScreen
    from crushpy.tui.screens.rewind import RestorationScreen, RewindScreen

    rewinder, session_id = conversation.files.rewinder, conversation.info.id
    points = await rewinder.points(session_id) if conversation.history else []
    if not points:
        chat.say("There is no prompt to go back to yet.")
        return
    chosen = await chat.show(RewindScreen(points, conversation.info.cwd))
    if chosen is None:
        return
    choices = [
        Choice("both", "Conversation and files"),
        Choice("conversation", "Conversation only", "what is on disk stays"),
        Choice("files", "Files only", "the conversation stays as it is"),
    ]
    what = await chat.show(ChooseScreen("What to restore?", choices))
    if what is None:
        return
    target = await rewinder.target(session_id, chosen)
    planned = await rewinder.plan_rewind(session_id, target) if what != "conversation" else None
    if planned is not None and (planned.views or what == "files"):
        title = f"Restore files to before: {target.message.text[:60]}"
        screen = RestorationScreen(
            title, planned.views, chat.transcript.current_palette, note=NOT_COVERED, always=what == "both"
        )
        paths = await chat.show(screen)
        if paths is None:
            return
        planned = planned.only(paths)
    if refuse_while_busy(chat) or chat.conversation is not conversation:
        return
    if what == "files":
        assert planned is not None
        outcome = await conversation.files.put_back(planned)
    else:
        outcome = await conversation.files.rewind(target, planned)
    if outcome is None:
        return
    if outcome.session is not None:
        await resume(chat, outcome.session.id)
        chat.take_back(target.message)
        chat.say(f"This is a branch that ends here; session {session_id} is unchanged (/lineage).")
    if outcome.restored or outcome.conflicts:
        chat.say(_told(outcome), warning=bool(outcome.conflicts))


def _told(outcome: "RewindOutcome", *, again: bool = False) -> str:
    count = len(outcome.restored)
    done = f"{counted(count, 'file')} {'changed again' if again else 'restored'}."
    skipped = "".join(f"\nSkipped: {one.path}: {one.reason}." for one in outcome.conflicts)
    return (done if count else "No file was changed.") + skipped
