"""The keys of the schema as data: lookup, spelling, allowed values, and the validation of values."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import msgspec

from crushpy.core.app_commands import APP_COMMANDS, FORMER_NAMES
from crushpy.core.errors import SettingsError
from crushpy.core.messages import shortened
from crushpy.settings import schema
from crushpy.settings.schema import Settings

KeyPath = tuple[str, ...]
"""A key as its parts: `("models", "openai/gpt-5", "threshold")`."""

ANY_NAME = "<name>"
"""Stands for the user's own name in `models.<name>.threshold` and `providers.<name>.api_base`."""


class Leaf(msgspec.Struct, frozen=True):
    """A key that holds a value, not other keys."""

    path: KeyPath
    struct: str
    """The class of the schema that defines it."""
    type: Any
    default: Any

    @property
    def key(self) -> str:
        return ".".join(self.path)

    @property
    def is_list(self) -> bool:
        """True for lists: those of all layers are joined."""
        return isinstance(self.default, tuple)

    @property
    def description(self) -> str:
        return _descriptions()[self.struct, self.path[-1]]

    @property
    def allowed(self) -> str:
        """A description of the allowed values."""
        return describe_type(self.type)


@cache
def leaves() -> dict[KeyPath, Leaf]:
    """All keys in the order of the schema, `<name>` standing for the user's own names."""
    return {leaf.path: leaf for leaf in _leaves(Settings, ())}


@cache
def tables() -> frozenset[KeyPath]:
    """All keys that hold other keys; `()` is the whole file."""
    return frozenset(path[:end] for path in leaves() for end in range(len(path)))


def general(path: KeyPath) -> KeyPath:
    """`models.x.threshold` -> `models.<name>.threshold`; other keys unchanged."""
    if len(path) > 1 and (path[0], ANY_NAME) in tables():
        return (path[0], ANY_NAME, *path[2:])
    return path


def find_leaf(path: KeyPath) -> Leaf | None:
    return leaves().get(general(path))


def _leaves(struct: type[msgspec.Struct], prefix: KeyPath) -> Iterator[Leaf]:
    for field in msgspec.structs.fields(struct):
        path, kind = (*prefix, field.name), cast("Any", field).type
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            yield from _leaves(kind, path)
        elif get_origin(kind) is dict:
            yield from _leaves(get_args(kind)[1], (*path, ANY_NAME))
        else:
            yield Leaf(path, struct.__name__, kind, field.default)


@cache
def _descriptions() -> dict[tuple[str, str], str]:
    """The docstrings of the schema's fields, by class and field. Slow: only listings show them."""
    import ast
    import inspect

    found = {("Keys", command.action): f"Key for {command.title}." for command in APP_COMMANDS}
    for node in ast.parse(inspect.getsource(schema)).body:
        for pair in pairwise(node.body if isinstance(node, ast.ClassDef) else ()):
            match pair:
                case (
                    ast.AnnAssign(target=ast.Name(id=field)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[cast(ast.ClassDef, node).name, field] = " ".join(text.split())
                case _:
                    pass
    return found


# --- how a key is spelled -------------------------------------------------------------------------------

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_MARK = "value"


def spell(path: KeyPath) -> str:
    """The key as TOML writes it: `models."openai/gpt-5".threshold`."""
    return ".".join(part if _BARE.fullmatch(part) else _quoted(part) for part in path)


def parse_key(text: str) -> KeyPath:
    """The parts of a key in TOML syntax; the quotes around a model's name are optional."""
    text = text.strip()
    head, _, rest = text.partition(".")
    if (head, ANY_NAME) in tables() and not set(rest) & set("\"'"):
        parts = rest.split(".")
        for end in (2, 1):
            name, last = ".".join(parts[:-end]), parts[-end:]
            if name and (end == 1 or (head, ANY_NAME, *last) in leaves()):
                return (head, name, *last)
    import tomllib

    try:
        value: Any = tomllib.loads(f'{text} = "{_MARK}"')
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _bad_key(text) from error
    path: list[str] = []
    while isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1:
        part, value = next(iter(cast("dict[str, Any]", value).items()))
        path.append(part)
    if value != _MARK:
        raise _bad_key(text)
    return tuple(path)


def variable(path: KeyPath) -> str:
    """The environment variable of a key: `CRUSHPY_COMPACTION__METHOD`."""
    return "CRUSHPY_" + "__".join(part if part == ANY_NAME else part.upper() for part in path)


def unknown(path: KeyPath, value: object = None) -> str:
    """The message about an unknown key, with the closest known one."""
    wanted, known = general(path), leaves()
    if wanted in tables():
        inside = ", ".join(leaf.key for leaf in known.values() if leaf.path[: len(wanted)] == wanted)
        return f"{spell(path)} is a group of settings: {inside}"
    if len(path) == 3 and wanted != path and isinstance(value, dict):
        quoted = f"[{path[0]}.{_quoted('.'.join(path[1:]))}]"
        return f"{spell(path)} is not a setting; put the name in quotes: {quoted}"
    names = [leaf.key for leaf in known.values()] + [".".join(table) for table in tables() if table]
    near = nearest(".".join(renamed(wanted)), names)
    if not near:
        near = next((leaf.key for leaf in known.values() if leaf.path[-1] == path[-1]), "")
    near = near.replace(ANY_NAME, spell(path[1:2])) if wanted != path else near
    return f"{spell(path)} is not a setting" + (f"; did you mean {near}?" if near else "")


def renamed(path: KeyPath) -> KeyPath:
    """A key by its present name, if it is that of a command that was called differently."""
    if path[:-1] != ("keys",):
        return path
    return ("keys", FORMER_NAMES.get(path[1].replace("_", "-"), path[1]).replace("-", "_"))


def nearest(word: str, known: list[str]) -> str:
    """The known name most similar to `word`, or empty."""
    import difflib

    return next(iter(difflib.get_close_matches(word, known, n=1)), "")


def show(value: object) -> str:
    """A value in TOML syntax, on one line and of bounded length."""
    return shortened(toml_value(value), 80)


def toml_value(value: object) -> str:
    match value:
        case str():
            return _quoted(value)
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return f"[{', '.join(toml_value(item) for item in cast('list[object]', value))}]"
        case Mapping():
            items = cast("Mapping[str, object]", value).items()
            return f"{{{', '.join(f'{spell((key,))} = {toml_value(item)}' for key, item in items)}}}"
        case _:
            return str(value)


def _quoted(text: str) -> str:
    """A text in double quotes, with control characters escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    codes = ((char, f"{ord(char):08x}") for char in escaped)
    return '"' + "".join(char if char.isprintable() else f"\\U{code}" for char, code in codes) + '"'


def _bad_key(text: str) -> SettingsError:
    return SettingsError(
        f"{show(text)} is not a key",
        'Keys look like compaction.method or models."openai/gpt-5".threshold; see crushpy config list --all',
    )


# --- descriptions of allowed values ---------------------------------------------------------------------


def _unwrap(kind: Any) -> tuple[Any, dict[str, Any]]:
    """The type inside `Annotated`, and the facts of its `Meta`."""
    if get_origin(kind) is not Annotated:
        return kind, {}
    bare, *metas = get_args(kind)
    facts: dict[str, Any] = {}
    for meta in metas:
        found = {name: getattr(meta, name) for name in ("gt", "ge", "le")}
        facts |= {name: fact for name, fact in found.items() if fact is not None}
        facts |= meta.extra or {}
    return bare, facts


def describe_type(kind: Any) -> str:
    """A description of the values that a type allows."""
    bare, facts = _unwrap(kind)
    if "allowed" in facts:
        return facts["allowed"]
    if get_origin(bare) in (Union, UnionType):
        return ", or ".join(describe_type(option) for option in get_args(bare) if option is not NoneType)
    if get_origin(bare) is Literal:
        quoted = [f'"{value}"' for value in get_args(bare)]
        return f"one of {', '.join(quoted)}" if len(quoted) > 1 else quoted[0]
    if bare in (int, float):
        low = f" above {facts['gt']}" if "gt" in facts else f" of at least {facts['ge']}"
        high = f" and at most {facts['le']}" if "le" in facts else ""
        return ("a whole number" if bare is int else "a number") + low + high
    if bare is bool:
        return "true or false"
    if get_origin(bare) is dict:
        return 'a table of texts, such as { NAME = "value" }'
    return "a text" if bare is str else 'a list of texts, such as ["one", "two"]'


# --- values: validated against the schema, and parsed from text


_PASSWORD_OPTION = re.compile(r"[?&](?:ssl)?password=.")


def _has_nul(value: object) -> bool:
    texts = cast("list[object]", value) if isinstance(value, list) else [value]
    return any("\0" in str(text) for text in texts)


def check(leaf: Leaf, path: KeyPath, value: object, where: str = "") -> object:
    """`value` converted to the type of its key. Errors begin with `where`: a file, variable or flag."""
    try:
        if _has_nul(value):
            raise msgspec.ValidationError("a NUL character")
        return msgspec.convert(value, leaf.type)
    except msgspec.ValidationError:
        is_key = isinstance(value, str) and "secret" in _unwrap(leaf.type)[1]
        shown = "(not shown: it could be a key)" if is_key else show(value)
        prefix = f"{where}: " if where else ""
        raise SettingsError(f"{prefix}{spell(path)} = {shown}: must be {leaf.allowed}") from None


def refuse_password(path: KeyPath, value: object, where: str = "") -> None:
    """Raises if the value is a database URL with a password, which must not be in a file."""
    if path != ("database_url",) or not isinstance(value, str):
        return
    who = value.partition("://")[2].partition("/")[0].rpartition("@")[0]
    if not (who.partition(":")[2] or _PASSWORD_OPTION.search(value)):
        return
    prefix = f"{where}: " if where else ""
    raise SettingsError(
        f"{prefix}database_url contains a password, which must not be stored in a file",
        "Remove it from the URL and put it into ~/.pgpass, PGPASSWORD or CRUSHPY_DATABASE_URL.",
    )


def check_text(leaf: Leaf, path: KeyPath, text: str, where: str = "") -> object:
    """The validated value of `text` for this key; quotes are optional."""
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise SettingsError(f"{where or 'the value'}: {spell(path)}: must be valid UTF-8")
    return check(leaf, path, _meant(leaf, text.strip()), where)


def _meant(leaf: Leaf, text: str) -> object:
    if leaf.is_list:
        return _parsed(text) if text.startswith("[") else split_rules(text)
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return _parsed(text)
    if isinstance(leaf.default, str):  # no other type is tried
        return text
    if text.startswith("{"):
        return _parsed(text)
    for number in (int, float):
        with suppress(ValueError):
            return number(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def split_rules(text: str) -> list[str]:
    """The rules of a comma-separated list; a comma inside brackets belongs to its rule."""
    rules, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")" and depth > 0)
        if char == "," and not depth:
            rules.append("")
        else:
            rules[-1] += char
    return [rule.strip() for rule in rules if rule.strip()]


def _parsed(text: str) -> object:
    """A quoted text or list in JSON or TOML syntax, else `text` itself."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(text)
    import tomllib

    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return found["value"] if len(found) == 1 else text
