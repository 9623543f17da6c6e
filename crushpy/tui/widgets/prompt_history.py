"""Earlier prompts of this folder, walked through with Up and Down. It knows no widget and no disk."""

from collections.abc import Iterable


class PromptHistory:
    """What is being written is kept at every step of a walk, and comes back on the way down."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._stored: list[str] = list(entries)
        self._added: list[str] = []
        self.loaded = False
        """Whether what was stored is here."""
        self._back = 0
        """How far back the walk is; 0 is the draft."""
        self._edited: dict[int, str] = {}
        """What was on screen at each step that was left."""

    def load(self, entries: Iterable[str]) -> None:
        """Takes what was stored, oldest first. It goes before the prompts of this run, also during a walk."""
        self._stored = [entry for entry in entries if entry not in self._added]
        self.loaded = True

    def add(self, text: str) -> None:
        """Remembers a prompt, unless it repeats the last one, and ends the walk."""
        if text.strip() and self._at(1) != text:
            self._added.append(text)
        self.reset()

    @property
    def left_behind(self) -> str:
        """The draft, while a walk shows something else."""
        return self._edited.get(0, "") if self._back else ""

    def reset(self) -> None:
        """Back to the draft; the next step up is the latest prompt."""
        self._back = 0
        self._edited.clear()

    def older(self, current: str) -> str | None:
        """The prompt before the one that is shown, which now reads `current`; None at the oldest."""
        return self._step(1, current)

    def newer(self, current: str) -> str | None:
        """The prompt after it, and at last the draft; None when that is what is shown."""
        return self._step(-1, current)

    def _step(self, by: int, current: str) -> str | None:
        target = self._back + by
        if target < 0 or (target > 0 and self._at(target) is None):
            return None
        self._edited[self._back] = current
        self._back = target
        return self._edited.get(target, self._at(target) or "")

    def _at(self, back: int) -> str | None:
        if 0 < back <= len(self._added):
            return self._added[-back]
        back -= len(self._added)
        return self._stored[-back] if 0 < back <= len(self._stored) else None
