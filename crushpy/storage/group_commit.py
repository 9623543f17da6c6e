"""Commits concurrent writes together: a reply with thousands of calls costs few transactions."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from crushpy.storage.records import CallWrite, written_to

BUSY_FAILURE_S = 5.0
"""A failure after this time means that the database was busy: the writes are not tried one by one."""
Failures = list[Exception | None]
"""One for each write: why it is not stored; None if it is."""
Group = list[tuple[CallWrite, asyncio.Future[None]]]
"""Writes, each with the future of its caller."""
Commit = Callable[[str, Sequence[CallWrite]], None]
"""Commits writes to one session, or conversation, in one transaction. On the storage thread."""


class GroupCommit:
    """`submit` runs a function on the storage thread."""

    def __init__(self, submit: Callable[[Callable[[], Failures]], Future[Failures]], commit: Commit) -> None:
        self._submit = submit
        self._commit = commit
        self._waiting: Group = []
        self._under_way = 0
        """Groups that are being committed; writes that arrive meanwhile form the next one."""

    async def write(self, write: CallWrite) -> None:
        """Returns once it is committed; it completes even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[None] = loop.create_future()
        if not self._waiting and not self._under_way:
            loop.call_soon(self.send)  # after all callbacks that are ready
        self._waiting.append((write, stored))
        await stored  # if cancelled, it is written all the same

    def send(self) -> None:
        """Submits the waiting writes, before any other job."""
        if not self._waiting:
            return
        group, self._waiting = self._waiting, []
        writes = [write for write, _ in group]
        loop = asyncio.get_running_loop()
        try:
            done = self._submit(lambda: _commit_all(self._commit, writes))
        except RuntimeError as closed:
            _settle(group, [closed] * len(group))
            return
        self._under_way += 1
        done.add_done_callback(lambda made: loop.call_soon_threadsafe(self._done, group, made.result()))

    def _done(self, group: Group, failures: Failures) -> None:
        self._under_way -= 1
        _settle(group, failures)
        if not self._under_way:
            self.send()


def _commit_all(commit: Commit, writes: Sequence[CallWrite]) -> Failures:
    failures: Failures = [None] * len(writes)
    places: dict[str, list[int]] = {}
    for place, write in enumerate(writes):
        places.setdefault(written_to(write), []).append(place)
    for where, here in places.items():
        failed = _commit_some(commit, where, [writes[place] for place in here])
        for place, failure in zip(here, failed, strict=True):
            failures[place] = failure
    return failures


def _commit_some(commit: Commit, where: str, writes: Sequence[CallWrite]) -> Failures:
    """If the group fails, each write is tried by itself: an invalid one does not affect the others."""
    began = time.monotonic()
    try:
        commit(where, writes)
    except Exception as failure:
        if len(writes) == 1 or time.monotonic() - began > BUSY_FAILURE_S:
            return [failure] * len(writes)
        return [one for write in writes for one in _commit_some(commit, where, [write])]
    return [None] * len(writes)


def _settle(group: Group, failures: Failures) -> None:
    for (_, stored), failure in zip(group, failures, strict=True):
        if stored.cancelled():
            continue
        if failure is None:
            stored.set_result(None)
        else:
            stored.set_exception(failure)
            stored.exception()  # retrieved, in case the caller is gone
