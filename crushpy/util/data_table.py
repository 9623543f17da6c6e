"""Tables of data that are edited as TOML.

`bin/generate-docs` writes each one as JSON beside it, which is what crushpy reads: parsing TOML takes fifty
times longer, for the tables of a first tool call 20 ms.
"""

from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def read_table(module: str, name: str, kind: type[T]) -> T:
    """The table `name` in the folder of a module, given by its `__file__`."""
    return msgspec.json.decode(Path(module).with_name(f"{name}.json").read_bytes(), type=kind)
