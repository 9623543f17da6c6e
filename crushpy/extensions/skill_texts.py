"""Skills and sub-agents as the model sees them: listed in the system prompt, and the text of a skill."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from crushpy.extensions.discovery import SKILL_FILE, Extension
from crushpy.llm.tokens import BYTES_PER_TOKEN

MAX_LISTING_TOKENS = 4_000
LISTING_SHARE = 50
"""The listing takes at most a fiftieth of the window."""
MIN_DESCRIPTION_CHARS = 20
"""A shorter description is left out."""
MAX_LISTED_FILES = 50


def listing_text(skills: Sequence[Extension], window: int) -> str:
    """One line for each. If they do not fit, all descriptions are shortened to the same length first,
    then the last are left out and counted."""
    room = BYTES_PER_TOKEN * min(MAX_LISTING_TOKENS, window // LISTING_SHARE)

    def lines(longest: int) -> list[str]:
        return [_line(skill.name, skill.description, longest) for skill in skills]

    def size(texts: Sequence[str]) -> int:
        return sum(len(text.encode()) + 1 for text in texts)

    longest = max((len(skill.description) for skill in skills), default=0)
    while size(shown := lines(longest)) > room and longest > 0:
        longest = longest * 19 // 20
    while shown and size(shown) > room:
        shown.pop()
    left_out = len(skills) - len(shown)
    more = [f"({left_out} more are not listed; load one by its name)"] if left_out else []
    return "\n".join([*shown, *more])


def _line(name: str, description: str, longest: int) -> str:
    if len(description) > longest:
        description = f"{description[: longest - 1]}…" if longest >= MIN_DESCRIPTION_CHARS else ""
    return f"- {name}: {description}" if description else f"- {name}"


def skill_text(skill: Extension) -> str:
    """What loading a skill adds to the context."""
    folder = str(skill.folder)
    body = skill.body.replace("${CLAUDE_SKILL_DIR}", folder)
    files = list(_files(skill.folder))
    names = ", ".join(files[:MAX_LISTED_FILES]) + (", ..." if len(files) > MAX_LISTED_FILES else "")
    beside = f"\n\nFiles in its folder: {names}" if files else ""
    return f"The skill {skill.name}. Paths in it are relative to its folder, {folder}.\n\n{body}{beside}"


def _files(folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        for name in sorted(names):
            path = Path(place, name)
            if name != SKILL_FILE and not path.is_symlink():
                yield str(path.relative_to(folder))
