"""One compaction or new session as data: storage, events, card, replay, ACP and page share this definition.

The types list what this version writes. A newer one may have written other values: storage does not check
them, and they are kept and shown as they are.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from crushpy.core.messages import Data

CompactionTrigger = Literal["agent", "auto", "manual", "overflow", "fallback"]
"""`agent`: it called `new_session`; `fallback`: it had not, and crushpy compacted."""
Trigger = Literal[CompactionTrigger, "branch", "return", "fork", "imported", ""]
"""`branch` and `return`: the child keeps the context and folds back; `fork`: the user forked; `imported`:
another agent had compacted; empty: no record of it is stored."""
SummaryOrigin = Literal["model", "agent", "user", "edited", "imported", "evidence"]
"""Who wrote the summary; `edited`: the user changed it; `evidence`: there is none."""
SessionKind = Literal["root", "continuation", "branch", "task", "fork"]
TurnStatus = Literal["done", "interrupted", "error", "limit", "loop"]
"""How a turn ended; a task ends with its turn."""
EndReason = Literal["", "new_session", CompactionTrigger, "branch", "return", "imported", TurnStatus]
"""Empty while the session is open; `new_session` if the trigger was `agent`, else the trigger; of a task, how
its turn ended."""
PreparationState = Literal["preparing", "ready", "failed", "used", "discarded"]

FORK: Final = "fork"
BRANCH: Final = "branch"
RETURN: Final = "return"
KEEPS_CONTEXT = (FORK, BRANCH)
"""Triggers of boundaries whose child begins with the whole context of its parent: nothing was compacted."""


class FactCount(NamedTuple):
    """Of `total` facts, how many the summary alone contains, and how many all that is carried contains."""

    total: int
    prose: int
    carried: int


LINEAGE = "_lineage"
"""Ends the kinds that count all facts since the root: rules, decisions and numbers of the user's."""


def of_this_boundary(facts: Mapping[str, FactCount]) -> dict[str, FactCount]:
    """The kinds that count the facts of the summarised messages."""
    return {kind: count for kind, count in facts.items() if not kind.endswith(LINEAGE)}


def carried_share(facts: Mapping[str, FactCount], *, by_prose: bool = False) -> float | None:
    """Share of the facts that were carried, or that the summary alone carries. None if there are none."""
    counts = of_this_boundary(facts).values()
    total = sum(count.total for count in counts)
    carried = sum(count.prose if by_prose else count.carried for count in counts)
    return round(carried / total, 4) if total else None


class Boundary(Data, frozen=True, omit_defaults=False):
    """How one session ended and its child opened."""

    id: str
    parent_id: str
    child_id: str
    trigger: Trigger
    tokens_before: int = 0
    tokens_after: int = 0
    """Estimated."""
    cost: float = 0.0
    seconds: float = 0.0
    """How long it took, including work in the background, without the user's reading time."""
    summary_source: SummaryOrigin | Literal[""] = ""
    """Empty if nothing was summarised."""
    summary_model: str = ""
    template: str = ""
    problem: str = ""
    """Why no better summary could be written, or which standing rules are at risk."""
    lineage: tuple[int, int] = (0, 0)
    """Of all facts since the root: how many there were, and how many were carried."""
    prepared: bool = False
    """The summary was ready when the boundary was due."""
    moment: str = ""
    """The natural moment it was made at: todo done, git commit, tests green, new prompt; or a goal."""
    waited_ms: int = 0
    """How long the turn waited for it."""
    threshold: float = 0.0
    """How full the window was allowed to be; 0 if the boundary was made for another reason."""
    facts: dict[str, FactCount] = msgspec.field(default_factory=dict[str, FactCount])
    """Counts of the facts in the summarised messages, by kind, and those since the root."""


class StoredBoundary(Boundary, frozen=True, omit_defaults=False, kw_only=True):
    """The record of a boundary, with details that only storage needs."""

    created_at: float
    tail: tuple[str, ...] = ()
    """Ids of earlier messages that the child's requests contain after its seed, with its overrides."""
    template_hash: str = ""
    truncated_chars: int = 0
    """Left out of the text that was summarised, because it was too long."""
    reported_after: int | None = None
    """The usage that the child's first reply reported."""
    undone_at: float | None = None
