"""How things stand at the moment of a boundary, beyond what the messages say: git, jobs, todos, grants."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from crushpy.context.evidence import WorkspaceSnapshot
from crushpy.security.safe_git import FILTERS, filter_names, git_command, git_environment
from crushpy.storage.records import SessionInfo
from crushpy.tools.shell.jobs import Jobs

GIT_PATIENCE = 5.0
MAX_DIRTY = 40


async def take_snapshot(info: SessionInfo, cwd: Path, jobs: Jobs) -> WorkspaceSnapshot:
    return WorkspaceSnapshot(
        cwd=str(cwd),
        todos=info.todos,
        jobs=tuple(f"{job.id}: {job.command}" for job in jobs.running()),
        git=await _git(cwd),
        grants=info.grants,
    )


async def _git(cwd: Path) -> tuple[str, ...]:
    """HEAD and the dirty files; nothing where git is missing, slow, or this is no repository."""
    head = await _output(cwd, "rev-list", "--max-count=1", "--format=%h %s", "HEAD")
    if not head:
        return ()
    filters = filter_names(await _output(cwd, *FILTERS))
    status = await _output(cwd, "status", "--porcelain", "--ignore-submodules=all", filters=filters)
    dirty = status.decode("utf-8", "replace").splitlines()
    lines = [
        f"HEAD {head.decode('utf-8', 'replace').splitlines()[-1]}",
        *(f"dirty: {line}" for line in dirty[:MAX_DIRTY]),
    ]
    if len(dirty) > MAX_DIRTY:
        lines.append(f"and {len(dirty) - MAX_DIRTY} more dirty files")
    return tuple(lines)


async def _output(cwd: Path, *words: str, filters: Sequence[str] = ()) -> bytes:
    try:
        process = await asyncio.create_subprocess_exec(
            *git_command(cwd, *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=git_environment(filters),
        )
    except OSError:
        return b""
    try:
        async with asyncio.timeout(GIT_PATIENCE):
            out, _ = await process.communicate()
        return out if process.returncode == 0 else b""
    except TimeoutError:
        return b""
    finally:
        if process.returncode is None:
            process.kill()
