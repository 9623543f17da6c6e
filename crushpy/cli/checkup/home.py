"""Checks of what crushpy keeps for this user: files, settings, the database."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from crushpy.cli.checkup.finding import Finding, Scene, fail, ok, size, warn
from crushpy.cli.checkup.server import server


def files(scene: Scene) -> Iterator[Finding]:
    paths = scene.paths
    places = {
        "config": paths.config_file,
        "state": paths.state_file,
        "templates": paths.templates,
        "log": paths.logs / "crushpy.log",
        "outputs": paths.outputs,
    }
    file = _database_file(scene)
    yield ok(f"database   {file}  ({_state(file)})" if file else f"database   {_server(scene)}")
    if file and file.is_file() and not os.access(file, os.W_OK):
        yield fail(f"{file} cannot be written to", "Change its permissions: chmod u+w, as its owner.")
    for name, path in places.items():
        yield ok(f"{name:<9}  {path}  ({_state(path)})")
    for folder in dict.fromkeys((paths.config_dir, paths.data_dir)):
        yield from _folder(folder)


def _state(path: Path) -> str:
    try:
        if path.is_dir():
            return "a folder"
        return size(path.stat().st_size)
    except OSError:
        return "not there yet"


def _folder(folder: Path) -> Iterator[Finding]:
    nearest = next((one for one in (folder, *folder.parents) if one.exists()), folder)
    if not nearest.is_dir():
        yield fail(f"{nearest} is in the way: it is not a folder", "Move it away, or set CRUSHPY_HOME.")
    elif not os.access(nearest, os.W_OK | os.X_OK):
        yield fail(f"{nearest} cannot be written to", "Change its permissions, or set CRUSHPY_HOME.")


def settings(scene: Scene) -> Iterator[Finding]:
    for warning in scene.loaded.warnings:
        yield warn(warning)
    chosen = {key: origin for key, origin in scene.loaded.origins.items() if origin != "default"}
    for key, origin in sorted(chosen.items()):
        yield ok(f"{key}  ({origin})")
    if scene.loaded.origins and not chosen:
        yield ok("everything is as it comes")


async def database(scene: Scene) -> AsyncIterator[Finding]:
    file = _database_file(scene)
    if file is None:
        async for finding in server(_server(scene), scene.settings.database_url):
            yield finding
        return
    if not file.exists():
        yield ok("not there yet: the first conversation makes it")
        return
    from crushpy.storage.store import Store

    store = Store(scene.paths.database, scene.settings.database_url)
    try:
        problems = await store.check()
        for warning in store.warnings:
            yield fail(warning)
        for problem in problems[:10]:
            yield fail(problem, f"`sqlite3 {file} .recover` can save what is in it.")
        if problems:
            return
        conversations = len(await store.sessions.list_tips())
        yield ok(f"sound, {conversations} conversation{'s' * (conversations != 1)}, {_state(file)}")
    finally:
        await store.close()


def _database_file(scene: Scene) -> Path | None:
    """None where conversations are on a server."""
    from crushpy.storage.location import database_file, is_server

    url = scene.settings.database_url
    return None if is_server(url) else database_file(scene.paths.database, url)


def _server(scene: Scene) -> str:
    from crushpy.storage.location import backend_at

    return backend_at(scene.paths.database, scene.settings.database_url).place
