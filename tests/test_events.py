"""Events are frozen data: every one of them goes through JSON and comes out the same."""

import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.event_json import KINDS as BY_TYPE
from support.event_json import event_from_json

from crushpy.core.events import Event, TaskEvent
from crushpy.security.sanitize import to_json

KINDS = sorted(BY_TYPE.values(), key=lambda kind: kind.__name__)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | numbers | floats | texts
json_values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    **{
        str: texts,
        int: numbers,
        float: floats,
        bool: st.booleans(),
        types.NoneType: st.none(),
        Any: json_values,
    }
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that our data may hold."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values_of, inner))
    if origin is Literal:
        return st.sampled_from(inner)
    if origin is tuple and inner[1:] == (...,):
        return st.lists(values_of(inner[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, inner))
    if origin is dict:
        return st.dictionaries(values_of(inner[0]), values_of(inner[1]), max_size=3)
    if kind is Event:  # inside a `TaskEvent`
        return st.sampled_from([kind for kind in KINDS if kind is not TaskEvent]).flatmap(values_of)
    if isinstance(kind, type) and issubclass(kind, tuple):
        return st.tuples(*map(values_of, get_type_hints(kind).values())).map(lambda values: kind(*values))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind)
        return st.builds(kind, **{name: values_of(hints[name]) for name in kind.__struct_fields__})
    raise AssertionError(f"{kind} is nothing that goes through JSON")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_event_survives_json_with_its_type_first(kind: type[Event], data: st.DataObject) -> None:
    event = data.draw(values_of(kind))
    encoded = to_json(event)
    assert encoded.startswith(b'{"type":"')
    back = event_from_json(encoded)
    assert type(back) is kind
    assert back == event
    assert to_json(back) == encoded
    assert set(msgspec.json.decode(encoded)) == {"type", *kind.__struct_fields__}  # nothing is left out


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_event_is_frozen_and_says_what_comes_before_and_after(kind: type[Event]) -> None:
    assert kind.__struct_config__.frozen
    assert kind.__doc__ and kind.__doc__ != Event.__doc__
