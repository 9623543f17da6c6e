"""What an approval shows: the exact command, change or arguments, in words too. Knows no widgets."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from textual.content import Content

from crushpy.core.events import ApprovalNeeded
from crushpy.core.messages import Diff
from crushpy.security.sanitize import revealed_pieces
from crushpy.tui.transcript.render.canvas import Canvas, Margin
from crushpy.tui.transcript.render.diff_rows import draw_diff, shows_whole
from crushpy.tui.transcript.render.tool_calls import draw_command

MARK = "reverse"
"""Tells the name of a hidden character from the same letters in plain text."""
MOST_MARKS = 1_000
"""More of them than this in one text are named but not marked: each would slow the screen down."""
WAIT = Content.styled("Keys count once typing has paused.", "$text-muted")
DENYING = Content.styled("Enter denies, with or without words.  Esc goes back.", "$text-muted")
NO_MARGIN = Margin((), ())
_STYLES = {"+": "$success", "-": "$error", "@": "$accent"}


def revealed_content(text: str, style: str = "") -> Content:
    """Foreign text with every hidden character named and marked."""
    pieces = list(revealed_pieces(text))
    if len(pieces) > MOST_MARKS:
        return Content.styled("".join([piece for piece, _ in pieces]), style)
    return Content.assemble(*[(piece, f"{style} {MARK}" if hidden else style) for piece, hidden in pieces])


def _in_line(text: str) -> Content:
    """The same for text that belongs on a line."""
    return revealed_content(text.replace("\n", " ⏎ "))


def title(question: ApprovalNeeded) -> Content:
    """Who asks for what, and which of how many questions it is."""
    task = " for a task" if question.task else ""
    number, count = question.place
    place = f"  {number} of {count}" if count > 1 else ""
    return Content.assemble("Allow ", revealed_content(question.name), f"{task}?{place}").stylize("bold")


def sentence(question: ApprovalNeeded) -> Content:
    """What it would do, in the user's words, and why it is asked."""
    says = _in_line(question.says[:1].upper() + question.says[1:])
    reason = _in_line(_why(question)).stylize("$text-muted")
    return Content(" · ").join([part for part in (says, reason) if part.plain])


def _why(question: ApprovalNeeded) -> str:
    """The reason, without what the words before it have named already."""
    why, _, of_what = question.reason.partition(": ")
    if (
        why.startswith("no rule allows ")
        and of_what
        and all(one in question.says for one in of_what.split(", "))
    ):
        return "no rule allows it"
    return question.reason


def drawing(question: ApprovalNeeded) -> Callable[[Canvas], None] | None:
    """Draws the command or the change as results are drawn; None where that would leave something out."""
    if _hidden(question):
        return None
    diff, args = question.preview, dict(question.args)
    if isinstance(diff, Diff) and diff.unified:
        return (lambda canvas: draw_diff(diff, canvas, NO_MARGIN)) if shows_whole(diff) else None
    if "command" not in args:
        return None
    command = str(args.pop("command"))

    def draw(canvas: Canvas) -> None:
        draw_command(command, canvas, NO_MARGIN)
        for name, value in args.items():
            canvas.prose([[(f"{name}: {value}", canvas.palette.muted)]], NO_MARGIN, canvas.palette.text)

    return draw


def what(question: ApprovalNeeded) -> Content:
    """The exact command or change; where there is neither, the arguments. Hidden characters are marked."""
    diff = _diff(question)
    if diff:
        return _joined(revealed_content(line, _STYLES.get(line[:1], "")) for line in diff.split("\n"))
    args = dict(question.args)
    command = [revealed_content(str(args.pop("command")), "bold")] if "command" in args else []
    return _joined([*command, *(revealed_content(f"{name}: {value}") for name, value in args.items())])


def warning(question: ApprovalNeeded, *, briefly: bool = False) -> Content:
    """Says that there is more than meets the eye; empty where there is not."""
    names = _hidden(question)
    unshown = _returns(question.args) - _diff(question).count("\r") if _diff(question) else 0
    words: list[str] = []
    if names:
        some = ", ".join(list(dict.fromkeys(names))[:3])
        many = f"{len(names):,} hidden character{'' if len(names) == 1 else 's'}"
        words.append(f"{many}: {some}" if briefly else f"It holds {many}, shown as {some}.")
    if unshown > 0:
        many = f"{unshown:,} carriage return{'' if unshown == 1 else 's'}"
        words.append(f"{many} left out" if briefly else f"The diff leaves out {many}.")
    return Content.styled(" ".join(words), "bold $text-warning") if words else Content("")


def height(content: Content, width: int, most: int) -> int:
    """How many lines of `width` cells it takes, or `most`: what is longer need not be measured."""
    text = content.plain
    if text.count("\n") >= most or len(text) > most * width:
        return most
    return min(most, content.get_height({}, width))


def shortened(content: Content, width: int, rows: int) -> Content:
    """`content`, or what of its beginning fits into `rows` lines of `width` cells, with a mark at the end."""
    if rows < 1 or content.get_height({}, width) <= rows:
        return content if rows else Content("")
    lines: list[Content] = []
    for _ in range(rows - 1):
        lines.append(content.truncate(width))
        content = content[len(lines[-1].plain) :]
    return Content("\n").join([*lines, content.truncate(width, ellipsis=True)])


def _diff(question: ApprovalNeeded) -> str:
    return question.preview.unified if isinstance(question.preview, Diff) else ""


def _hidden(question: ApprovalNeeded) -> list[str]:
    """The names of what would hide, as often as it stands there."""
    args = [f"{name}: {value}" for name, value in question.args.items()]
    asked = [_diff(question)] if _diff(question) else args
    for texts in ([question.name, *asked], [question.reason, question.rule]):
        found = [piece for text in texts for piece, hidden in revealed_pieces(text) if hidden]
        if found:
            return found  # the reason and the rule repeat what is asked
    return []


def _returns(value: object) -> int:
    """Carriage returns in arguments."""
    return sum([text.count("\r") for text in _texts(value)])


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        inside = cast("Iterable[Any]", value.values() if isinstance(value, dict) else value)
        for one in inside:
            yield from _texts(one)


def _joined(lines: Iterable[Content]) -> Content:
    return Content("\n").join(list(lines))
