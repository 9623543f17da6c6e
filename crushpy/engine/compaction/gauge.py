"""Keeps the figures from which the budget is computed: our own counts, and the provider's last report."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from crushpy.context.budget import Budget, Report, Sizes, budget
from crushpy.context.cuts import apply_cuts
from crushpy.defaults import DEFAULT_WINDOW
from crushpy.llm.protocol import Request
from crushpy.llm.tokens import Counter
from crushpy.messages import Cut, Message, Usage, to_json


class Gauge:
    """How full one session's window is. `void` it when the history it speaks of is no longer the one sent."""

    def __init__(self, window: Callable[[str], int | None]) -> None:
        self._window = window
        self._limits: dict[str, int] = {}
        self._counter = Counter()
        self._sizes: dict[tuple[str, int], tuple[int, bool]] = {}
        self._fixed: dict[str, tuple[int, bool]] = {}
        self._reported: int | None = None
        self._cached = 0
        self._covered = 0

    def load(self) -> None:
        """Waits for the vocabulary: counts are exact afterwards, where there is one."""
        self._counter.wait()

    def count(self, text: str) -> int:
        return self._counter.count(text)[0]

    def size(self, message: Message) -> int:
        """A message in tokens: as stored with it, or counted once and kept."""
        if message.tokens:
            return message.tokens
        key = (message.id, _length(message))  # a message that is shown cut keeps its id
        known = self._sizes.get(key)
        if known is None or (not known[1] and self._counter.exact):
            known = self._counter.count_message(message)
            self._sizes[key] = known
        return known[0]

    def exact_size(self, message: Message) -> int:
        """What to store with a message; 0 while only a guess could be given."""
        return self._counter.count_message(message)[0] if self._counter.exact else 0

    def fixed_tokens(self, request: Request) -> int:
        """System prompt and tool schemas."""
        text = request.system + to_json(request.tools).decode()
        known = self._fixed.get(text)
        if known is None or (not known[1] and self._counter.exact):
            known = self._counter.count(text)
            self._fixed = {text: known}
        return known[0]

    def void(self) -> None:
        """Forgets the last report: a boundary, another model or another prompt made it meaningless."""
        self._reported, self._cached, self._covered = None, 0, 0

    def restore(
        self, history: Sequence[Message], cuts: Mapping[str, Cut], inherited: int, model: str
    ) -> None:
        """Takes up the last stored report; what was carried over a boundary speaks of another window, and
        what was said before the context was edited of another request."""
        edited = {cut.made_after for cut in cuts.values()}
        for number in range(len(history) - 1, inherited - 1, -1):
            message = history[number]
            if message.id in edited:
                return
            if message.usage is not None and message.model == model:
                self.reported(message.usage, apply_cuts(history[: number + 1], cuts))
                return

    def limit_window(self, model: str, tokens: int) -> None:
        """An error named the model's real window."""
        self._limits[model] = tokens

    def window(self, model: str) -> int:
        """The model's window, or the documented default where nobody knows it."""
        return self._known_window(model) or DEFAULT_WINDOW

    def _known_window(self, model: str) -> int | None:
        limit = self._limits.get(model)
        window = self._window(model)
        return min(limit, window or limit) if limit else window

    def reported(self, usage: Usage | None, history: Sequence[Message]) -> None:
        """Takes the usage of a reply whose request held all of `history` but the reply itself, its last."""
        self._reported = usage.total if usage else 0
        self._cached = usage.cache_read_tokens if usage else 0
        self._covered = len(history)

    @property
    def cached(self) -> int:
        """Tokens the provider read from its cache the last time."""
        return self._cached

    def reading(self, request: Request, history: Sequence[Message]) -> Budget:
        """The budget by the figures at hand, without loading anything."""
        fixed, each = self.fixed_tokens(request), [self.size(message) for message in history]
        covered, added = sum(each[: self._covered]), sum(each[self._covered :])
        sizes = Sizes(fixed, covered + added, added, self._counter.exact)
        report = None if self._reported is None else Report(self._reported, fixed + covered)
        return budget(sizes, report, self._known_window(request.model))

    async def settled(self, request: Request, history: Sequence[Message], threshold: float) -> Budget:
        """The budget, exact where it might reach `threshold`.

        A token is at least one byte, so as long as the bytes stay below, nothing has to be counted and
        the vocabulary (half a second, 30 MB) need not be loaded.
        """
        rough = self.reading(request, history)
        if self._counter.exact:
            return rough
        if rough.believed and self._most(request, history) < threshold * rough.window:
            return rough
        await asyncio.to_thread(self._counter.wait)
        return self.reading(request, history)

    def _most(self, request: Request, history: Sequence[Message]) -> int:
        """An upper bound of the tokens: the report plus every byte since, or all bytes."""
        since = sum(len(to_json(message.parts)) for message in history[self._covered :])
        if self._reported:
            return self._reported + since
        return since + len(request.system.encode()) + len(to_json(request.tools))


def _length(message: Message) -> int:
    result = message.result
    return len(result.text) if result else len(message.text)
