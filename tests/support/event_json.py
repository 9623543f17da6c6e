"""Reads events back from JSON, by their `type`."""

from typing import Any

import msgspec

from crushpy.core.events import Event, TaskEvent


def subclasses(base: type[Event]) -> set[type[Event]]:
    return {base, *(subclasse for child in base.__subclasses__() for subclasse in subclasses(child))}


KINDS: dict[object, type[Event]] = {kind.__struct_config__.tag: kind for kind in subclasses(Event) - {Event}}


def event_from_json(data: bytes | str) -> Event:
    return _converted(msgspec.json.decode(data))


def _converted(fields: dict[str, Any]) -> Event:
    kind = KINDS[fields["type"]]
    if kind is TaskEvent:
        return TaskEvent(fields["name"], _converted(fields["event"]))
    return msgspec.convert(fields, kind)
