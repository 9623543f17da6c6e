"""Keeps the figures from which the budget is computed: token counts and the provider's last reports."""

from collections import deque
from collections.abc import Callable, Sequence

from crushpy.context.budget import Budget, Calibration, Report, Sizes, budget, calibrate, plausible, ratio_of
from crushpy.context.inspect import fixed_texts, kind_of, seed_texts
from crushpy.context.overrides import apply_overrides
from crushpy.core.defaults import DEFAULT_WINDOW
from crushpy.core.messages import Image, Message, Overrides, Usage
from crushpy.llm.protocol import Request
from crushpy.llm.tokens import Counter
from crushpy.security.sanitize import to_json
from crushpy.util.prefix_cache import PrefixCache

MAX_REPORTS = 8
"""How many of the last usage reports are used."""


class Gauge:
    """How full one session's window is. Call `reset` when the history is no longer the one that was sent.

    All figures are tokens of the session's model: our own counts, scaled by the ratio its reports taught.
    """

    def __init__(
        self,
        window: Callable[[str], int | None],
        ratios: Callable[[str, bool], Sequence[float]],
        count_image: Callable[[str, Image], int],
        model: str = "",
        fixed_tokens: int | None = None,
    ) -> None:
        """`ratios` gives those learnt for a model: against counts, or (False) against estimates by bytes.
        `count_image` counts a picture as a model's vendor does. `fixed_tokens`: our count of prompt and
        tools, if the request does not have them."""
        self._fixed_tokens = fixed_tokens
        self._window = window
        self._ratios = ratios
        self._count_image_for = count_image
        self._model = model
        self._counter = Counter()
        self._sizes: dict[tuple[str, int], tuple[int, bool]] = {}
        self._fixed: dict[str, tuple[int, bool]] = {}
        self._totals: PrefixCache[Message, list[int]] = PrefixCache(lambda: [0])
        """Element n is the size of the first n messages."""
        self._kinds: PrefixCache[Message, list[tuple[str, int]]] = PrefixCache(list)
        """Kind and size of each part of the messages."""
        self._fixed_kinds: tuple[object, list[tuple[str, int]]] = None, []
        self._reports: deque[tuple[Usage, int]] = deque(maxlen=MAX_REPORTS)
        """Each with the number of messages it covers, its reply included."""
        self.calibration = Calibration()
        """As of the last reading."""
        self._kept: tuple[str, bool, float | None] = ("", False, None)
        """The ratio when the reports were forgotten, with its model and way of counting."""

    def _count_image(self, image: Image) -> int:
        return self._count_image_for(self._model, image)

    def load(self) -> None:
        """Waits for the token vocabulary: counts are exact afterwards, if there is one."""
        self._counter.wait()

    def load_for(self, history: Sequence[Message]) -> None:
        """Loads the vocabulary and counts a history. Call it in a thread."""
        self.load()
        for message in history:
            self._counted(message)

    @property
    def exact(self) -> bool:
        """Whether texts are counted, not estimated."""
        return self._counter.exact

    def count(self, text: str) -> int:
        return self.calibration.scale(self._counter.count(text)[0])

    def count_for(self, model: str) -> Callable[[str], int]:
        """A function that counts in tokens of another model, as far as its ratio is known."""
        other = Calibration(ratio_of(self._ratios(model, self.exact)) or self.calibration.ratio)
        return lambda text: other.scale(self._counter.count(text)[0])

    def size(self, message: Message) -> int:
        """A message in tokens."""
        return self.calibration.scale(self._counted(message))

    def fixed_tokens(self, request: Request) -> int:
        """System prompt and tool schemas."""
        return self.calibration.scale(self._counted_fixed(request))

    def request_size(self, request: Request, messages: Sequence[Message]) -> int:
        return self.calibration.scale(self._counted_fixed(request) + sum(map(self._counted, messages)))

    def exact_size(self, message: Message) -> int:
        """The count to store with a message; 0 while only an estimate is possible."""
        return self._counter.count_message(message, self._count_image)[0] if self.exact else 0

    def _counted(self, message: Message) -> int:
        """Our count of a message: the stored one, or counted once and cached. While other messages are
        estimated, so is this one, since a ratio holds for one way of counting."""
        if message.tokens and self.exact:
            return message.tokens
        result = message.result  # a shortened message keeps its id but has another length
        key = message.id, len(result.text) if result else message.length
        known = self._sizes.get(key)
        if known is None or (not known[1] and self.exact):
            known = self._sizes[key] = self._counter.count_message(message, self._count_image)
        return known[0]

    def _counted_fixed(self, request: Request) -> int:
        if self._fixed_tokens is not None:
            return self._fixed_tokens
        text = request.system + to_json(request.tools).decode()
        known = self._fixed.get(text)
        if known is None or (not known[1] and self.exact):
            known = self._counter.count(text)
            self._fixed = {text: known}
        return known[0]

    def reset(self, *, edited: bool = False) -> None:
        """Forgets the reports: after a boundary, a model switch or an edit they describe another request. The
        ratio stays valid for the model. After an edit it is that of the last report, so that no message that
        is still shown changes its size."""
        ratio = self.calibration.ratio
        if edited and self.calibration.believed:
            (last, covered), sums = self._last, self._totals.state
            counted = sum(tokens for tokens, _ in self._fixed.values()) + sums[min(covered, len(sums) - 1)]
            if counted and plausible(last.total / counted):
                ratio = last.total / counted
        self._kept = (self._model, self.exact, ratio)
        self._reports.clear()

    def restore(self, history: Sequence[Message], overrides: Overrides, inherited: int, model: str) -> None:
        """Loads the stored reports of this session, as far back as they describe the same requests: neither
        across a boundary nor before an edit of the context."""
        edited = {override.made_after for override in overrides.values()}
        found: list[int] = []
        for number in range(len(history) - 1, inherited - 1, -1):
            message = history[number]
            if message.id in edited or len(found) == MAX_REPORTS:
                break
            if message.usage is not None:
                if message.model != model:
                    break
                found.append(number)
        for number in reversed(found):
            self.add_report(history[number].usage, len(apply_overrides(history[: number + 1], overrides)))

    def window(self, model: str) -> int:
        """The model's window, or the documented default if it is unknown."""
        return self._window(model) or DEFAULT_WINDOW

    def add_report(self, usage: Usage | None, covered: int) -> None:
        """Adds the usage of a reply, the last of `covered` messages; its request held all the others."""
        self._reports.append((usage or Usage(), covered))

    @property
    def cached(self) -> int:
        """Tokens the provider read from its cache the last time."""
        return self._last[0].cache_read_tokens

    @property
    def _last(self) -> tuple[Usage, int]:
        return self._reports[-1] if self._reports else (Usage(), 0)

    def reading(self, request: Request, history: tuple[Message, ...]) -> Budget:
        """The budget by the figures at hand, without loading anything."""
        self._model = request.model
        fixed = self._counted_fixed(request)
        added = self._totals.advance(history, self.exact)
        sums = self._totals.state
        for message in added:
            sums.append(sums[-1] + self._counted(message))
        self.calibration = self._calibrated(request.model, fixed, sums)
        last, covered = self._last
        sizes = Sizes(fixed, sums[-1], sums[-1] - sums[min(covered, len(history))], self.exact)
        reported = last.total if self._reports else None
        return budget(sizes, reported, self._window(request.model), self.calibration)

    def by_kind(self, request: Request, history: tuple[Message, ...]) -> dict[str, int]:
        """Tokens of each kind of part, as the inspector lists them; only what is new is counted."""
        key = request.system, request.tools, self.exact
        if self._fixed_kinds[0] != key:
            schemas = [(tool.name, to_json(tool).decode()) for tool in request.tools]
            texts = fixed_texts(request.system, schemas)
            self._fixed_kinds = key, [(kind, self._counter.count(text)[0]) for kind, _, text in texts]
        for message in self._kinds.advance(history, self.exact):
            seed = [(kind, self._counter.count(text)[0]) for kind, _, text in seed_texts(message)]
            self._kinds.state.extend(seed or [(kind_of(message), self._counted(message))])
        totals: dict[str, int] = {}
        for kind, counted in (*self._fixed_kinds[1], *self._kinds.state):
            totals[kind] = totals.get(kind, 0) + self.calibration.scale(counted)
        return totals

    def _calibrated(self, model: str, fixed: int, sums: Sequence[int]) -> Calibration:
        reports = [
            Report(usage.total - usage.output_tokens, fixed + sums[min(covered, len(sums)) - 1])
            for usage, covered in self._reports
        ]
        kept_model, was_exact, ratio = self._kept
        if ratio is not None and (kept_model, was_exact) == (model, self.exact):
            return calibrate(reports, (ratio, ratio))
        return calibrate(reports, self._ratios(model, self.exact))

    def most(self, request: Request, history: Sequence[Message]) -> int:
        """An upper bound of the tokens: the last report plus every byte since, or all bytes."""
        last, covered = self._last
        since = last.total or len(request.system.encode()) + len(to_json(request.tools))
        for message in history[covered:]:  # pictures by their own count
            since += len(to_json(message.parts))
            since += sum(self._count_image(image) - len(image.data) for image in message.images)
        return since
