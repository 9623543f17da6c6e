"""What was learnt of a model on a server, kept in one private file: its window, the form of the status it
takes, and how its tokens relate to ours. Nothing depends on it: a broken file costs what it knew."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from crushpy.core.messages import Data
from crushpy.llm.protocol import ModelInfo
from crushpy.security.private_files import locked, write_private

log = logging.getLogger(__name__)

VERSION = 1
LOCK_TIMEOUT_S = 5.0
"""Seconds to wait for another process that writes."""
RATIOS = 5
"""How many ratios are kept of each kind."""
NEWS = 0.01
"""How far from the middle of those known a ratio must be to be worth writing, once there are enough."""


class LearntModel(Data, frozen=True):
    """What is known of one model on one server."""

    window: int | None = None
    """Named by an error."""
    status_placement: str = ""
    """append: its server refused a message of its own for the status."""
    ratios: tuple[float, ...] = ()
    """Reported tokens for each one we counted, of the last replies."""
    rough_ratios: tuple[float, ...] = ()
    """The same for each four bytes, of replies that came before anything could be counted."""
    window_doubted: bool = False
    """The user was told that its window is unknown."""


class LearntFile(Data, frozen=True, omit_defaults=False):
    """The whole file: by model, then by the address of its server (empty: the vendor's usual one)."""

    version: int = VERSION
    models: dict[str, dict[str, LearntModel]] = msgspec.field(
        default_factory=dict[str, dict[str, LearntModel]]
    )


Change = Callable[[LearntModel], LearntModel]
_NOTHING = LearntModel()


class LearntModels:
    """Read when first asked. What is new holds at once; it is written in the background, one change at a time
    on what the file holds then, so that processes side by side add to it."""

    def __init__(self, file: Path | None) -> None:
        """Without a file what is learnt lasts as long as this."""
        self._file = file
        self._known: dict[str, dict[str, LearntModel]] | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._read_only = False
        self.problem = ""
        """Why the file is not used, for the user."""

    def of(self, model: str, server: str) -> LearntModel:
        return self._models.get(model, {}).get(server, _NOTHING)

    def learn(self, model: str, server: str, change: Change) -> None:
        """Changes what is known of a model on a server."""
        before = self.of(model, server)
        if change(before) == before:
            return
        self._models.setdefault(model, {})[server] = change(before)
        if self._file is not None and not self._read_only:
            if self._writer is None:
                self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="learnt")
            self._writer.submit(self._write, self._file, model, server, change)

    def windows(self, server_of: Callable[[str], str]) -> list[tuple[str, LearntModel]]:
        """The models whose window was learnt from the server that serves them now."""
        here = [(model, self.of(model, server_of(model))) for model in self._models]
        return [(model, known) for model, known in here if known.window]

    def close(self) -> None:
        """Waits until everything is written."""
        if self._writer is not None:
            self._writer.shutdown()

    @property
    def _models(self) -> dict[str, dict[str, LearntModel]]:
        if self._known is None:
            self._known = self._read().models
        return self._known

    def _read(self) -> LearntFile:
        if self._file is None:
            return LearntFile()
        try:
            content = self._file.read_bytes()
        except FileNotFoundError:
            return LearntFile()
        except OSError as error:
            self.problem = f"{self._file} cannot be read ({error.strerror}): what was learnt is not used."
            return LearntFile()
        try:
            version = msgspec.json.decode(content, type=_Versioned).version
            if version > VERSION:
                self._read_only = True
                self.problem = f"{self._file} was written by a newer crushpy: what it has learnt is not used."
                return LearntFile()
            return msgspec.json.decode(content, type=LearntFile)
        except (msgspec.DecodeError, RecursionError) as error:
            self.problem = f"{self._file} is damaged ({error}): what was learnt is discarded."
            return LearntFile()

    def _write(self, file: Path, model: str, server: str, change: Change) -> None:
        """On a thread of its own. A failure is told once; what was learnt holds for this process."""
        try:
            with locked(file.with_name(f"{file.name}.lock"), LOCK_TIMEOUT_S):
                found = self._read()
                if self._read_only:
                    return
                servers = found.models.setdefault(model, {})
                servers[server] = change(servers.get(server, _NOTHING))
                write_private(file, msgspec.json.format(msgspec.json.encode(found)) + b"\n")
        except (OSError, TimeoutError) as error:
            log.info("%s was not written: %s", file, error)
            self.problem = f"{file} cannot be written ({error}): what was learnt holds for this run only."


class _Versioned(Data, frozen=True):
    version: int = 0


def with_learnt_window(info: ModelInfo, known: LearntModel) -> ModelInfo:
    """What is known of a model, with the window its server named unless the user chose one."""
    if info.source == "settings" or known.window is None or known.window <= 0:
        return info
    return msgspec.structs.replace(info, context_window=known.window, source="learnt")


def with_ratio(ratio: float, *, counted: bool, replacing: tuple[float, ...] = ()) -> Change:
    """Adds the ratio of one more reply; `replacing` replaces those that speak of another tokenizer."""

    def change(known: LearntModel) -> LearntModel:
        before = known.ratios if counted else known.rough_ratios
        if not replacing and len(before) >= RATIOS:
            middle = sorted(before)[len(before) // 2]
            if abs(ratio - middle) <= NEWS * middle:
                return known
        kept = tuple(round(one, 4) for one in (replacing or (*before, ratio)))[-RATIOS:]
        return msgspec.structs.replace(known, **{"ratios" if counted else "rough_ratios": kept})

    return change
