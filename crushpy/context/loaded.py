"""Skills, nested rules files and the evidence of hooks as a child session receives them. Pure."""

from collections.abc import Callable, Sequence

from crushpy.context.tags import attribute, element, safe
from crushpy.core.messages import LoadedText

MAX_SKILL_TOKENS = 5_000
MAX_SKILLS_TOKENS = 25_000
SKILLS_SHARE, RULES_SHARE = 10, 20
"""Skills take at most a tenth of the window, rules files a twentieth."""
_TAGS = {"skill": ("skill", "name"), "rules": ("instructions", "path"), "hook": ("hook", "name")}
FACT_KINDS = {"skill": "skills", "rules": "nested_rules", "hook": "hook_evidence"}
"""The kinds of facts that coverage counts."""
HEADING = "In use in the earlier session, and still in force:"
BY_NAME = "Also in use, but not repeated here: skill(name) loads a skill again; rules come with their files."


def carry_loaded(
    sources: Sequence[LoadedText], window: int, count: Callable[[str], int]
) -> tuple[LoadedText, ...]:
    """What a child gets of everything loaded, in the same order: the latest in full as long as there is
    room, the rest by name."""
    room = {
        "skill": min(MAX_SKILLS_TOKENS, window // SKILLS_SHARE),
        "rules": window // RULES_SHARE,
    }
    carried: list[LoadedText] = []
    for one in reversed(sources):
        shown = _shortened(one, count) if one.kind == "skill" else one
        size = count(_block(shown)) if shown.text else 0
        if size > room.get(one.kind, size):
            shown, size = LoadedText(one.key), 0
        room[one.kind] = room.get(one.kind, 0) - size
        carried.append(shown)
    return tuple(reversed(carried))


def _shortened(one: LoadedText, count: Callable[[str], int]) -> LoadedText:
    """The beginning of a skill that is too long."""
    size, keep = count(_block(one)), len(one.text)
    text = one.text
    while size > MAX_SKILL_TOKENS and keep:
        keep = min(keep * 9 // 10, keep * MAX_SKILL_TOKENS // size)
        text = f"{one.text[:keep]}\n[... cut; skill({one.name!r}) loads all of it ...]"
        size = count(_block(LoadedText(one.key, text)))
    return LoadedText(one.key, text, whole=keep == len(one.text))


def _title(one: LoadedText) -> str:
    tag, mark = _TAGS[one.kind]
    return f'{tag} {mark}="{attribute(one.name)}"'


def _block(one: LoadedText) -> str:
    tag, mark = _TAGS[one.kind]
    return element(tag, one.text, **{mark: one.name})


def loaded_text(loaded: Sequence[LoadedText]) -> str:
    """Everything carried, for the first message of the child."""
    blocks = [_block(one) for one in loaded if one.text]
    names = [f"- {safe(_title(one))}" for one in loaded if not one.text]
    parts = [HEADING, *blocks] if blocks else []
    return "\n".join([*parts, *([BY_NAME, *names] if names else ())])


def loaded_facts(loaded: Sequence[LoadedText]) -> dict[str, list[str]]:
    """What coverage looks for, by kind."""
    found: dict[str, list[str]] = {}
    for one in loaded:
        found.setdefault(FACT_KINDS[one.kind], []).append(_title(one))
    return found
