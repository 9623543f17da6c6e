"""What the shell offers for an argument. Each function runs at a press of Tab, and must be fast."""

from collections.abc import Callable
from typing import Any

from crushpy.core.errors import CrushpyError
from crushpy.core.paths import Paths


def complete_sessions() -> list[tuple[str, str]]:
    """Ids and titles of the latest conversations of this folder."""
    import asyncio
    from pathlib import Path

    from crushpy.security.sanitize import clean
    from crushpy.settings.layers import load
    from crushpy.storage.store import Store

    async def list_sessions() -> list[tuple[str, str]]:
        store = Store(Paths().database, load(Paths(), Path.cwd()).settings.database_url)
        try:
            found = await store.sessions.list_tips(str(Path.cwd()), 50) if store.location.exists else []
            latest = [("latest", "")] if found else []
            return latest + [(session.id, clean(session.title)) for session in found]
        finally:
            await store.close()

    try:
        return asyncio.run(list_sessions())
    except (CrushpyError, OSError):
        return []


def complete_models() -> list[str]:
    """Models of the settings, and those of the catalog whose provider has a key. No server is asked."""
    from functools import cache
    from pathlib import Path

    from crushpy.llm.catalog import DEMO, chat_names
    from crushpy.llm.key_store import locate_key
    from crushpy.settings.layers import load

    try:
        settings = load(Paths(), Path.cwd()).settings
    except (CrushpyError, OSError):
        return []

    @cache
    def has_key(provider: str) -> bool:
        place = locate_key(provider, settings)
        return place.held or place.stored

    named = {DEMO, settings.model, settings.small_model, settings.compaction.model, *settings.models} - {""}
    return sorted(named | {name for name in chat_names() if has_key(name.partition("/")[0])})


def correct_scripts() -> None:
    """Corrects the scripts of Typer: zsh ignored the first Tab of a shell, and fish asked twice for each."""
    from typer import _completion_shared  # private: no setting changes a script

    scripts = _completion_shared._completion_scripts  # pyright: ignore[reportPrivateUsage]
    scripts["zsh"] += '\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then %(complete_func)s "$@"; fi'
    scripts["fish"] = _FISH


_FISH = r"""
function %(complete_func)s
    set -lx %(autocomplete_var)s complete_fish
    set -lx _TYPER_COMPLETE_FISH_ACTION get-args
    set -lx _TYPER_COMPLETE_ARGS (commandline -cp)
    set -g %(complete_func)s_found (%(prog_name)s)
    test -n "$%(complete_func)s_found"
end
complete -c %(prog_name)s --no-files --condition %(complete_func)s --arguments '$%(complete_func)s_found'
"""
COMPLETERS: dict[str, Callable[..., Any]] = {"ID": complete_sessions, "MODEL": complete_models}
"""By the placeholder of an option."""
