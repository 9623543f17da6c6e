"""The bytes of files as they were: found by their hash, compressed, bounded, the oldest go first."""

import hashlib
import os
import zlib
from contextlib import suppress
from itertools import count
from pathlib import Path

from crushpy.core.ids import new_id
from crushpy.core.paths import private_dir
from crushpy.security.private_files import write_private

CHECK_EVERY = 32_000_000
"""Bytes written after which the size of the whole is looked at again; or a tenth of what there may be."""
_PLAIN, _PACKED = b"\0", b"\1"


def hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class ObjectStore:
    """One for each home of crushpy; several processes may use it at the same time. Belongs to no thread."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self._objects = folder / "objects"
        self._max_bytes = max_bytes
        self._check_every = min(CHECK_EVERY, max_bytes // 10)
        self._unchecked = self._check_every  # so that the first write looks
        self._mine = f"{os.getpid():x}-{os.urandom(4).hex()}"
        self._numbers = count()

    @property
    def machine(self) -> str:
        """A name for this home on this machine: what was kept here can be put back here alone."""
        file = self.folder / "machine"
        try:
            name = file.read_text().strip()
        except FileNotFoundError:
            name = new_id()
            write_private(file, name.encode())
        return f"{name}{_machine_id()[:8]}"

    def put(self, content: bytes, digest: str = "") -> str:
        """Keeps `content`; its hash. Raises OSError where there is no room for it."""
        digest = digest or hash_of(content)
        folder = f"{self._objects}/{digest[:2]}"
        file = f"{folder}/{digest[2:]}"
        try:
            os.utime(file)  # it is wanted again: not among the oldest any more
            return digest
        except OSError:
            pass
        packed = zlib.compress(content, 1)
        data = _PACKED + packed if len(packed) < len(content) else _PLAIN + content
        temporary = f"{folder}/{self._mine}-{next(self._numbers)}.tmp"
        handle = _new_file(temporary)
        try:
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(handle, left) :]
            finally:
                os.close(handle)
            os.replace(temporary, file)  # noqa: PTH105  # thousands of files, one after the other
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            raise
        self._unchecked += len(data)
        if self._unchecked >= self._check_every:
            self._unchecked = 0
            self.prune()
        return digest

    def has(self, digest: str) -> bool:
        return self._file(digest).exists()

    def get(self, digest: str) -> bytes | None:
        """The bytes of this hash; None where they are gone or damaged."""
        try:
            data = self._file(digest).read_bytes()
            content = zlib.decompress(data[1:]) if data[:1] == _PACKED else data[1:]
        except (OSError, zlib.error):
            return None
        return content if hash_of(content) == digest else None

    def forget(self, digests: set[str]) -> None:
        for digest in digests:
            with suppress(OSError):
                self._file(digest).unlink()

    def prune(self) -> int:
        """Deletes what was not wanted for longest until the rest is small enough; how many bytes remain."""
        found: list[tuple[int, int, str]] = []
        for folder in self._folders():
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    with suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        found.append((status.st_mtime_ns, status.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        if total > self._max_bytes:
            for _, size, path in sorted(found):
                with suppress(OSError):
                    os.unlink(path)  # noqa: PTH108
                total -= size
                if total <= self._max_bytes * 0.9:
                    break
        return total

    def _folders(self) -> list[str]:
        try:
            with os.scandir(self._objects) as entries:
                return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []

    def _file(self, digest: str) -> Path:
        return self._objects / digest[:2] / digest[2:]


def _new_file(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        private_dir(Path(path).parent)
        return os.open(path, flags, 0o600)


def _machine_id() -> str:
    """What the system calls this machine; nothing where it does not say."""
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""
