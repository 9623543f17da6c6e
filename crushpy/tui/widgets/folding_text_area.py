"""A text area that folds large pastes to marks, and handles keys strictly in the order they were typed."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from os.path import commonprefix
from typing import cast

from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.widgets import TextArea
from textual.widgets.text_area import Document, Edit, EditResult, Location, Selection, TextAreaTheme

from crushpy.core.pastes import find_pastes, paste_label, too_large
from crushpy.security.sanitize import clean
from crushpy.tui.textual_adapter import app_of, bindings_with_keymap, run_bound_action

MAX_SHOWN = 20_000
"""Unfolded characters a prompt may hold; beyond that editing would become slow."""

_MARK = r"\[pasted [\d,]+ (?:lines|characters) #(\d+)\]"
"""Compiled on first use, to keep start-up fast."""
_PIECE = 64_000


def plain_breaks(text: str) -> str:
    """Normalizes line breaks: terminals paste carriage returns."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


class Folded:
    """A folded text. It may be megabytes, so it is sanitized in the background, or when needed."""

    def __init__(self, number: int, raw: str) -> None:
        self.mark = f"[{paste_label(raw)} #{number}]"
        self._raw = raw
        # Five megabytes in a few milliseconds; the sanitiser itself takes ten times as long.
        harmless = raw.isascii() and raw.replace("\n", "").replace("\t", "").isprintable()
        self._text = raw if harmless else None

    @property
    def waits(self) -> bool:
        """Whether `text` is not sanitized yet."""
        return self._text is None

    @property
    def text(self) -> str:
        """The sanitized text. In a thread it never holds the interpreter lock for long."""
        if self._text is None:
            self._text = "".join(clean(piece) for piece in _pieces(self._raw))
        return self._text


class Pastes:
    """The folded texts of one draft, kept as long as the draft, so that undo can restore a mark."""

    def __init__(self) -> None:
        self._folded: dict[int, Folded] = {}
        self.pasting = False
        """The next edit is a paste."""
        self._unfolded: dict[int, list[tuple[int, int]]] = {}
        """Other pastes, by the hash of the text that has them: one that was shown, sent or loaded."""

    def fold(self, text: str) -> Folded:
        """Stores `text` and returns it with its mark."""
        for folded in self._folded.values():
            if not folded.waits and folded.text == text:
                return folded
        number = len(self._folded) + 1
        self._folded[number] = Folded(number, text)
        return self._folded[number]

    def expand(self, text: str) -> str:
        return re.sub(_MARK, self._meant, text) if self._folded else text

    def contained(self, text: str) -> tuple[str, ...]:
        """The pasted texts that `text` has, folded to their marks or not, in order."""
        return tuple(self.expand(text[start:end]) for start, end in self.pasted(text))

    def pasted(self, text: str) -> list[tuple[int, int]]:
        """Where marks and other pastes are in a text."""
        return sorted({*self._unfolded.get(hash(text), ()), *self.spans(text)})

    def note(self, text: str, pasted: Iterable[tuple[int, int]]) -> None:
        """Remembers what of `text` was pasted, for as long as the same text is not typed."""
        self._unfolded.pop(hash(text), None)
        if spans := [(start, end) for start, end in pasted if end - start > 1]:
            self._unfolded[hash(text)] = spans

    def follow(self, old: str, new: str, start: int, end: int) -> None:
        """After an edit of `old[start:end]`: a paste stays one over the range that it occupies now."""
        grown = len(new) - len(old)
        moved = [(start, end + grown)] if self.pasting else []
        start += len(commonprefix([old[start:end], new[start : end + grown]]))  # noqa: RUF071 (no paths)
        end -= len(commonprefix([old[start:end][::-1], new[start : end + grown][::-1]]))  # noqa: RUF071
        for first, last in self.pasted(old):
            if first < end and start < last:
                moved.append((min(first, start), max(last, end) + grown))
            else:
                moved.append((first + grown, last + grown) if first >= end else (first, last))
        self.pasting = False
        self.note(new, moved)

    def admit(self, text: str, pasted: Iterable[str] = ()) -> str:
        """`text`, with these pastes, as the prompt shows it: known or too large texts as marks."""
        text, pasted = plain_breaks(text), [plain_breaks(paste) for paste in pasted]
        for paste in filter(too_large, pasted):
            self.fold(paste)
        for folded in self._folded.values():
            if folded.text:
                text = text.replace(folded.text, folded.mark)
        if len(text) > MAX_SHOWN:
            return self.fold(self.expand(text)).mark
        text = clean(text)
        self.note(text, find_pastes(text, map(clean, pasted)))
        return text

    def spans(self, line: str) -> list[tuple[int, int]]:
        """The start and end of each mark in a line."""
        marks = re.finditer(_MARK, line) if self._folded else ()
        return [mark.span() for mark in marks if self._known(mark)]

    def clear(self) -> None:
        self._folded.clear()

    def _known(self, match: "re.Match[str]") -> bool:
        folded = self._folded.get(int(match[1]))
        return folded is not None and folded.mark == match[0]

    def _meant(self, match: "re.Match[str]") -> str:
        """The text of a mark; a lookalike is left unchanged."""
        return self._folded[int(match[1])].text if self._known(match) else match[0]


def _pieces(text: str) -> Iterator[str]:
    """Splits `text` after line breaks if there are any: no escape sequence spans them."""
    start = 0
    while start < len(text):
        end = text.rfind("\n", start, start + _PIECE) + 1
        end = end if end > start else start + _PIECE
        yield text[start:end]
        start = end


_UNUSED = Style.null()
_THEME = TextAreaTheme(
    "prompt",
    gutter_style=_UNUSED,
    cursor_line_style=_UNUSED,
    cursor_line_gutter_style=_UNUSED,
    bracket_matching_style=_UNUSED,
)
"""Names what the area never draws; otherwise Textual computes these styles for every key."""


class FoldingTextArea(TextArea):
    """A mark is one unit: the cursor steps over it and a deletion removes all of it."""

    BINDINGS = [
        Binding("ctrl+underscore", "undo", "Undo", show=False),
        Binding("ctrl+shift+z", "redo", "Redo", show=False),
        Binding("alt+d", "delete_word_right", "Delete word", show=False),
    ]

    def __init__(self) -> None:
        self.pastes = Pastes()
        super().__init__(soft_wrap=True, highlight_cursor_line=False)
        self.register_theme(_THEME)
        self.theme = _THEME.name
        self.cursor_blink = False  # no timer while idle

    # --- keys --------------------------------------------------------------------------------------------

    def takes(self, event: events.Key) -> bool:
        """Whether the key types or edits here."""
        return event.is_printable or event.key in bindings_with_keymap(self)

    async def on_key(self, event: events.Key) -> None:
        if event.is_printable:
            if event.key.startswith("alt+"):
                event.prevent_default()  # Textual would type the letter
            else:
                return
        await run_bound_action(self, event)

    def find_matching_bracket(self, bracket: str, search_from: Location) -> Location | None:
        return None  # prose; and the search would walk through all of it at each step

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys without an effect here are the chat's: Ctrl+D in an empty prompt, PgUp in one that fits."""
        if action == "delete_right":
            return bool(self.text)
        if action in ("cursor_page_up", "cursor_page_down"):
            return self.wrapped_document.height > self.content_size.height
        return super().check_action(action, parameters)

    def action_delete_to_start_of_line(self) -> None:
        """Deletes in the whole line, not only in one row of a line that is wrapped."""
        row, column = end = self.selection.end
        if column:
            self.delete((row, 0), end, maintain_selection_offset=False)
        else:
            super().action_delete_to_start_of_line()

    def action_delete_to_end_of_line(self) -> None:
        row, _ = start = self.selection.end
        self.delete(start, (row, len(self.document.get_line(row))), maintain_selection_offset=False)

    # --- pastes ------------------------------------------------------------------------------------------

    def on_paste(self, event: events.Paste) -> None:
        event.stop().prevent_default()
        self.paste_text(event.text)

    def paste_own_clipboard(self) -> None:
        """Pastes the text that was cut or copied in the app."""
        self.paste_text(app_of(self).clipboard)

    def paste_text(self, text: str, *, typed: bool = False) -> None:
        """Inserts untrusted text at the cursor: sanitized, and folded if it is large. `typed`: not pasted."""
        text = plain_breaks(text)
        if too_large(text):
            folded = self.pastes.fold(text)
            if folded.waits:
                # In a thread, so that sending it is fast.
                self.run_worker(lambda: folded.text, thread=True, group="pastes")
            text = folded.mark
        else:
            text = clean(text)
        start, end = self.selection
        self.pastes.pasting = not typed
        self.move_cursor(self.replace(text, start, end, maintain_selection_offset=False).end_location)

    def action_copy(self) -> None:
        super().action_copy()
        self._copy_whole()

    def action_cut(self) -> None:
        something = bool(self.text)
        super().action_cut()
        if something:
            self._copy_whole()

    def _copy_whole(self) -> None:
        """Copies the text with marks expanded, to every available clipboard."""
        from crushpy.tui.terminal.clipboard import hand_on

        whole = self.pastes.expand(app_of(self).clipboard)
        if whole != app_of(self).clipboard:
            app_of(self).copy_to_clipboard(whole)
        self.run_worker(hand_on(whole), group="clipboard")

    # --- marks are units ---------------------------------------------------------------------------------

    def validate_selection(self, selection: Selection) -> Selection:
        old = self.selection
        return Selection(self._step_over(selection.start, old.start), self._step_over(selection.end, old.end))

    def edit(self, edit: Edit) -> EditResult:
        """Every edit but undo and redo, which bring back a text that is known."""
        place, old = cast(Document, self.document).get_index_from_location, self.text
        before, behind = self._mark_at(edit.top), self._mark_at(edit.bottom)
        top = (edit.top[0], before[0]) if before else edit.top
        bottom = (edit.bottom[0], behind[1]) if behind else edit.bottom
        start, end = place(top), place(bottom)
        result = super().edit(replace(edit, from_location=top, to_location=bottom))
        self.pastes.follow(old, self.text, start, end)
        return result

    def _mark_at(self, location: Location) -> tuple[int, int] | None:
        row, column = location
        if row >= self.document.line_count:
            return None
        spans = self.pastes.spans(self.document.get_line(row))
        return next(((start, end) for start, end in spans if start < column < end), None)

    def _step_over(self, to: Location, come_from: Location) -> Location:
        mark = self._mark_at(to)
        if mark is None:
            return to
        row, (start, end) = to[0], mark
        if come_from <= (row, start):
            return row, end
        if come_from >= (row, end):
            return row, start
        return row, (start if to[1] - start < end - to[1] else end)
