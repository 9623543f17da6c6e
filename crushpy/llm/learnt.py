"""Facts learnt about a model on a server, stored in one private file: its window, the status placement it
accepts, how it writes tool calls, and the ratio of its tokens to ours. A damaged file is discarded without
further harm."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from threading import Event

import msgspec

from crushpy.core.messages import Data
from crushpy.llm.protocol import ModelInfo
from crushpy.security.private_files import locked, write_private

log = logging.getLogger(__name__)

WRITE_DELAY_S = 2.0
"""Changes within that time are written together."""
LOCK_TIMEOUT_S = 5.0
"""For another process that writes the file."""
MAX_RATIOS = 5
"""Number of ratios stored of each kind."""
MIN_RATIO_CHANGE = 0.01
"""Relative distance from the median at which another ratio is stored, once there are enough."""


class LearntModel(Data, frozen=True):
    """The facts about one model on one server."""

    window: int | None = None
    """As the server named it; 0: what it named was too small."""
    status_placement: str = ""
    """append: its server refused a separate message for the status."""
    call_form: str = ""
    """How it wrote tool calls into its text; empty: it did not."""
    ratios: tuple[float, ...] = ()
    """Reported tokens per token counted by us, of the last replies."""
    rough_ratios: tuple[float, ...] = ()
    """Reported tokens per four bytes, of replies before the tokenizer was loaded."""
    window_doubted: bool = False
    """The user was told that its window is unknown."""


class LearntFile(Data, frozen=True, omit_defaults=False):
    """The content of the file: by model, then by the address of its server (empty: the vendor's default)."""

    version: int = 1
    models: dict[str, dict[str, LearntModel]] = msgspec.field(
        default_factory=dict[str, dict[str, LearntModel]]
    )


Change = Callable[[LearntModel], LearntModel]
_NOTHING = LearntModel()


class LearntModels:
    """Reads the file on first use. A change takes effect immediately. It is written in the background, to the
    current content of the file, so that concurrent processes add to it."""

    def __init__(self, file: Path | None) -> None:
        """Without a file, facts last as long as this object."""
        self._file = file
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="learnt")
        self._waiting: list[tuple[str, str, Change]] = []
        """To be written; every reply may change a ratio."""
        self._closing = Event()
        self.problem = ""
        """Why the file is not used, for the user."""

    def get(self, model: str, server: str) -> LearntModel:
        """The facts about a model; its window may have been learnt under another name of it."""
        found = self._models.get(model, {}).get(server, _NOTHING)
        if found.window is not None or not server:
            return found
        wanted = _identity(model, server)
        windows = (
            known.window
            for name, servers in self._models.items()
            for address, known in servers.items()
            if known.window and _identity(name, address) == wanted
        )
        return msgspec.structs.replace(found, window=next(windows, None))

    def update(self, model: str, server: str, change: Change) -> None:
        """Change the facts about a model on a server."""
        before = self.get(model, server)
        if change(before) == before:
            return
        self._models.setdefault(model, {})[server] = change(before)
        if self._file is not None:
            self._waiting.append((model, server, change))
            if len(self._waiting) == 1:
                self._writer.submit(self._write, self._file)

    def current(self, address_of: Callable[[str], str]) -> dict[str, LearntModel]:
        """The models whose window or form of calls was learnt from their current server, by name."""
        found = {model: self.get(model, address_of(model)) for model in self._models}
        return {model: known for model, known in found.items() if known.window or known.call_form}

    def close(self) -> None:
        """Wait until all changes are written."""
        self._closing.set()
        self._writer.shutdown()

    @cached_property
    def _models(self) -> dict[str, dict[str, LearntModel]]:
        return self._read().models

    def _read(self) -> LearntFile:
        try:
            if self._file is not None and self._file.exists():
                return msgspec.json.decode(self._file.read_bytes(), type=LearntFile)
        except OSError as error:
            self.problem = f"{self._file} cannot be read ({error.strerror}): learnt windows are not used."
        except (msgspec.DecodeError, RecursionError) as error:
            self.problem = f"{self._file} is damaged ({error}): learnt windows are discarded."
        return LearntFile()

    def _write(self, file: Path) -> None:
        """Runs on the writer thread. After a failure the changes hold for this process only."""
        self._closing.wait(WRITE_DELAY_S)
        changes, self._waiting = self._waiting, []
        try:
            with locked(file.with_name(f"{file.name}.lock"), LOCK_TIMEOUT_S):
                found = self._read()
                for model, server, change in changes:
                    servers = found.models.setdefault(model, {})
                    servers[server] = change(servers.get(server, _NOTHING))
                write_private(file, msgspec.json.format(msgspec.json.encode(found)) + b"\n")
        except (OSError, TimeoutError) as error:
            log.info("%s was not written: %s", file, error)
            self.problem = f"{file} cannot be written ({error}): learnt windows hold for this run only."


def _identity(model: str, server: str) -> tuple[str, str]:
    """The same for every name of a model on one server: openai/qwen3, ollama/qwen3:latest, lab/qwen3."""
    name = (model.partition("/")[2] or model).removesuffix(":latest")
    return name, server.removesuffix("/v1").replace("//localhost:", "//127.0.0.1:")


def with_learnt_window(info: ModelInfo, known: LearntModel) -> ModelInfo:
    """`info` with the learnt form of calls, and the learnt window unless the settings have one."""
    info = msgspec.structs.replace(info, call_form=known.call_form)
    if info.source == "settings" or known.window is None or known.window <= 0:
        return info
    if info.source == "server" and info.context_window == known.window:
        return info
    return msgspec.structs.replace(info, context_window=known.window, source="learnt")


def add_ratio(ratio: float, *, counted: bool, replacing: tuple[float, ...] = ()) -> Change:
    """Add the ratio of another reply. `replacing`: replaces all ratios, which were of another tokenizer."""

    def change(known: LearntModel) -> LearntModel:
        before = known.ratios if counted else known.rough_ratios
        if not replacing and len(before) >= MAX_RATIOS:
            median = sorted(before)[len(before) // 2]
            if abs(ratio - median) <= MIN_RATIO_CHANGE * median:
                return known
        kept = tuple(round(value, 4) for value in (replacing or (*before, ratio)))[-MAX_RATIOS:]
        return msgspec.structs.replace(known, **{"ratios" if counted else "rough_ratios": kept})

    return change
