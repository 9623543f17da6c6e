"""How things stand at the moment of a boundary, beyond what the messages say: git, jobs, todos, grants."""

import asyncio
from pathlib import Path

from crushpy.context.evidence import WorkspaceSnapshot
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
    head = await _output("git", "-C", str(cwd), "log", "-1", "--format=%h %s")
    if not head:
        return ()
    dirty = (await _output("git", "-C", str(cwd), "status", "--porcelain")).splitlines()
    lines = [f"HEAD {head.strip()}", *(f"dirty: {line}" for line in dirty[:MAX_DIRTY])]
    if len(dirty) > MAX_DIRTY:
        lines.append(f"and {len(dirty) - MAX_DIRTY} more dirty files")
    return tuple(lines)


async def _output(*command: str) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(GIT_PATIENCE):
            out, _ = await process.communicate()
        return out.decode("utf-8", "replace") if process.returncode == 0 else ""
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            process.kill()
