"""At which share of its window a session ends by itself, by the settings, its model and its method."""

from collections.abc import Callable
from typing import Literal

from crushpy.context.budget import threshold_of
from crushpy.core.defaults import DEFAULT_THRESHOLD
from crushpy.engine.session.session import LiveSession
from crushpy.settings import Settings

Trigger = Literal["agent", "auto", "manual", "overflow", "fallback"]


PREPARED_FROM = 0.85
"""The share of the threshold at which a boundary is prepared."""


class Thresholds:
    """Those of one session, read anew each time: settings and method may change between two requests."""

    def __init__(self, session: LiveSession, settings: Callable[[], Settings]) -> None:
        self._session = session
        self._settings = settings

    @property
    def trigger(self) -> Trigger:
        """What a boundary at the threshold is called."""
        return "fallback" if self._session.info.compaction == "llm" else "auto"

    @property
    def in_force(self) -> float | None:
        """The share at which the session ends; None where only an overflow ends it."""
        compaction = self._settings().compaction
        if self.trigger == "fallback":
            return compaction.fallback_threshold
        model = self._settings().models.get(self._session.info.model)
        threshold = threshold_of(compaction.threshold, model.threshold if model else None)
        if threshold is not None and self._session.held:
            return max(threshold, compaction.fallback_threshold)
        return threshold

    @property
    def prepared_from(self) -> float | None:
        """The share from which on the next boundary is prepared; None where none is."""
        if self.trigger == "fallback" or not self._settings().compaction.prepare:
            return None
        threshold = self.in_force
        return None if threshold is None else PREPARED_FROM * threshold

    @property
    def soft(self) -> float | None:
        """The share from which on a natural moment counts; None where none does."""
        compaction, threshold = self._settings().compaction, self.in_force
        if not compaction.moments or threshold is None or self._session.held:
            return None
        return compaction.soft_threshold if threshold > compaction.soft_threshold else None

    @property
    def planned(self) -> float:
        """The share that a boundary plans for, also where none is in force."""
        return self.in_force or DEFAULT_THRESHOLD
