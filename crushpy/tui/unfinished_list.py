"""What the app says of a conversation whose list of tasks is not done: how far it is, and what goes on."""

from typing import TYPE_CHECKING

from crushpy.tui.items import NoticeItem
from crushpy.tui.transcript.render.canvas import PROSE

if TYPE_CHECKING:
    from crushpy.engine.conversation import Conversation

ROWS = 24
"""Of the table; what does not fit is counted in its last line."""
_EDGE = 8
"""Columns that the transcript needs for itself."""


async def unfinished_list(conversation: "Conversation", width: int) -> NoticeItem | None:
    """The table of its tasks, to be read; None where there is no list, or all of it is done."""
    tasks = await conversation.tasks.unfinished()
    if not tasks:
        return None
    from crushpy.engine.agents.task_reports import table_lines, task_state_event

    done = sum(task.state == "done" for task in tasks)
    go_on = f"crushpy run --resume {conversation.info.root_id}"
    said = f"{done} of {len(tasks)} tasks of its list are done; `{go_on}` goes on with the rest."
    room = max(20, min(width, PROSE) - _EDGE)
    table = table_lines([task_state_event(task, len(tasks)) for task in tasks], room, ROWS)
    return NoticeItem("\n".join([said, *table]), "warning")
