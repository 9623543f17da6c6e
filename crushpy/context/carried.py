"""What a child session receives beside summary and evidence, within budgets: the user's pins, skills, nested
rules files and the evidence of hooks. Pure."""

from collections.abc import Sequence

import msgspec

from crushpy.context.tags import Count, attribute, element, quoted, safe
from crushpy.core.messages import Data, LoadedText

WINDOW_SHARE = 20
"""Pins take at most a twentieth of the window."""
MIN_FILE_TOKENS = 40
"""Files are shortened to this size before texts and messages are shortened."""
HEADING = "Pinned by the user, carried word for word over every compaction. A file is as it was then."


class PinView(Data, frozen=True, omit_defaults=False):
    """A pin with its current content, without secrets."""

    number: int
    kind: str
    """text, file or message."""
    name: str
    """Of the file, relative to the working directory, or the message's id; empty for a text."""
    text: str
    problem: str = ""
    """Why there is no text, for example because the file is gone."""
    tokens: int = 0
    created_at: float = 0.0


class CarriedPins(Data, frozen=True):
    """All pins as a seed contains them."""

    text: str = ""
    facts: tuple[str, ...] = ()
    """The text of each pin; empty if it could not be read."""
    warnings: tuple[str, ...] = ()


def pin_limit(pin_tokens: int, window: int) -> int:
    """Tokens that all pins together may take."""
    return min(pin_tokens, window // WINDOW_SHARE)


def pins_text(contents: Sequence[PinView]) -> str:
    return "\n".join((HEADING, *map(_shown, contents))) if contents else ""


def carry_pins(contents: Sequence[PinView], limit: int, count: Count) -> CarriedPins:
    """The pins within `limit` tokens. If they do not fit, files are shortened first, then texts."""
    facts = tuple("" if content.problem else content.text for content in contents)
    warnings = [
        f"Pin {content.number} ({content.name}): {content.problem}."
        for content in contents
        if content.problem
    ]
    text, shown = pins_text(contents), contents
    sizes = [count(content.text) for content in contents]
    for kinds, least in ((("file",), MIN_FILE_TOKENS), (("file", "text", "message"), 0)):
        longest = min(limit, max(sizes, default=0))
        while count(text) > limit and longest > least:
            longest = longest * 9 // 10
            shown = [
                msgspec.structs.replace(content, text=quoted(content.text, longest, count, _source(content)))
                if content.kind in kinds and size > longest
                else content
                for content, size in zip(contents, sizes, strict=True)
            ]
            text = pins_text(shown)
    for before, after in zip(contents, shown, strict=True):
        if before.text != after.text:
            name = f" ({before.name})" if before.name else ""
            warnings.append(
                f"Pin {before.number}{name} outgrew the {limit:,} tokens for pins: "
                "its head and tail are carried."
            )
    if count(text) > limit:
        text = ""
        warnings = [f"{limit:,} tokens are too few for any of the {len(contents)} pins: none is carried."]
    return CarriedPins(text, facts, tuple(warnings))


def _source(content: PinView) -> str:
    """The call that reads all of it."""
    return f"view {content.name}" if content.kind == "file" else f"recall {content.name}".strip()


def _shown(content: PinView) -> str:
    marks = {"number": str(content.number)} | ({content.kind: content.name} if content.kind != "text" else {})
    if content.problem:
        return element("pin", f"({content.problem})", **marks, carried="no")
    return element("pin", content.text, **marks)


MAX_SKILL_TOKENS = 5_000
MAX_SKILLS_TOKENS = 25_000
SKILLS_SHARE, RULES_SHARE = 10, 20
"""Skills take at most a tenth of the window, rules files a twentieth."""
_TAGS = {"skill": ("skill", "name"), "rules": ("instructions", "path"), "hook": ("hook", "name")}
FACT_KINDS = {"skill": "skills", "rules": "nested_rules", "hook": "hook_evidence"}
"""The kinds of facts that coverage counts."""
IN_USE = "In use in the earlier session, and still in force:"
BY_NAME = "Also in use, but not repeated here: skill(name) loads a skill again; rules come with their files."


def carry_loaded(sources: Sequence[LoadedText], window: int, count: Count) -> tuple[LoadedText, ...]:
    """What a child gets of everything loaded, in the same order: the latest in full as long as there is
    room, the rest by name."""
    room = {"skill": min(MAX_SKILLS_TOKENS, window // SKILLS_SHARE), "rules": window // RULES_SHARE}
    carried: list[LoadedText] = []
    for source in reversed(sources):
        shown = _shortened_skill(source, count) if source.kind == "skill" else source
        size = count(_block(shown)) if shown.text else 0
        if size > room.get(source.kind, size):
            shown, size = LoadedText(source.key), 0
        room[source.kind] = room.get(source.kind, 0) - size
        carried.append(shown)
    return tuple(reversed(carried))


def _shortened_skill(one: LoadedText, count: Count) -> LoadedText:
    """The beginning of a skill that is too long."""
    size, keep = count(_block(one)), len(one.text)
    text = one.text
    while size > MAX_SKILL_TOKENS and keep:
        keep = min(keep * 9 // 10, keep * MAX_SKILL_TOKENS // size)
        text = f"{one.text[:keep]}\n[... truncated; skill({one.name!r}) loads all of it ...]"
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
    blocks = [_block(item) for item in loaded if item.text]
    names = [f"- {safe(_title(item))}" for item in loaded if not item.text]
    parts = [IN_USE, *blocks] if blocks else []
    return "\n".join([*parts, *([BY_NAME, *names] if names else ())])


def loaded_facts(loaded: Sequence[LoadedText]) -> dict[str, list[str]]:
    """What coverage looks for, by kind."""
    found: dict[str, list[str]] = {}
    for item in loaded:
        found.setdefault(FACT_KINDS[item.kind], []).append(_title(item))
    return found
