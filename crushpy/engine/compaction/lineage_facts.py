"""The facts of a lineage, read from storage for evidence, and its standing rules, which the user may edit."""

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path

import msgspec

from crushpy.context.carried import pin_limit
from crushpy.context.evidence import WorkspaceSnapshot
from crushpy.context.ledger import Ledger
from crushpy.context.message_facts import FactReader, MessageFacts
from crushpy.context.standing_rules import ADDED, WITHDRAWN, CarriedRules, RuleFact, RulePhrases, carry_rules
from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, Note
from crushpy.core.templates import PHRASES, Templates, read_phrases, read_template
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.session.session import LiveSession
from crushpy.security.redact import redact
from crushpy.security.safe_git import git_output, known_filters
from crushpy.security.sanitize import encodable
from crushpy.storage.records import EVERYTHING, SessionInfo
from crushpy.storage.store import Store
from crushpy.tools.base import ToolContext


class RuleList(Data, frozen=True, omit_defaults=False):
    rules: tuple[RuleFact, ...]
    """Those that ended included."""
    tokens: int
    """Of all that apply, as far as they fit."""
    limit: int
    left_out: int
    """How many would be left out at a boundary now."""

    @property
    def valid(self) -> list[RuleFact]:
        """Those that apply."""
        return [rule for rule in self.rules if not rule.ended]


def rule_phrases(templates: Templates) -> Callable[[], RulePhrases]:
    """Reads the phrases in force at each call; an edit of the template applies to the next prompt."""
    return lambda: templates.first_usable(PHRASES, lambda _, path: _compiled(read_template(path), str(path)))


@lru_cache(maxsize=2)
def _compiled(source: str, origin: str) -> RulePhrases:
    return RulePhrases(read_phrases(source, origin))


def rule_limit(scope: AgentScope) -> int:
    """Tokens that all rules together may take."""
    window = scope.gauge.window(scope.session.info.model)
    return pin_limit(scope.settings.compaction.rule_tokens, window)


async def carried_rules(scope: AgentScope, ledger: Ledger) -> CarriedRules:
    """The rules of `ledger` as a child would receive them."""
    rules, dropped = ledger.rules or (), ledger.dropped.get("rules", 0)
    count = scope.gauge.count
    return await asyncio.to_thread(
        carry_rules, rules, rule_limit(scope), count, dropped=dropped, redact=redact
    )


class RuleService:
    """A change is a note in the session: the model sees it with the next request, and branches inherit it."""

    def __init__(self, scope: AgentScope, is_busy: Callable[[], bool]) -> None:
        self._scope, self._session, self._is_busy = scope, scope.session, is_busy

    async def listed(self) -> RuleList:
        await asyncio.to_thread(self._scope.gauge.load)
        ledger = await load_ledger(self._session, self._scope.services.store, store_missing=False)
        carried = await carried_rules(self._scope, ledger)
        return RuleList(ledger.rules or (), carried.tokens, rule_limit(self._scope), carried.left_out)

    async def add(self, text: str) -> RuleFact:
        """Adds a rule. `UsageError` if it is empty, known or too long."""
        text = encodable(text.strip())
        if not text:
            raise UsageError("the rule is empty", "Give its text.")
        listed = await self.listed()
        same = next((rule for rule in listed.valid if rule.text == text), None)
        if same is not None:
            raise UsageError(f"this is a standing rule already, number {same.number}")
        size = self._scope.gauge.count(text)
        if listed.tokens + size > listed.limit:
            raise UsageError(
                f"this does not fit: it takes {size:,} tokens, and the rules take {listed.tokens:,} of "
                f"{listed.limit:,}",
                "Drop another rule, or raise compaction.rule_tokens (at most 5% of the window).",
            )
        await self._note(Note(f"{ADDED}\n{text}", about="rule"))
        return (await self.listed()).valid[-1]

    async def drop(self, number: int) -> RuleFact:
        """Withdraws a rule. `UsageError` if none of that number applies."""
        valid = {rule.number: rule for rule in (await self.listed()).valid}
        rule = valid.get(number)
        if rule is None:
            numbers = ", ".join(map(str, valid)) or "none"
            raise UsageError(
                f"there is no standing rule {number}; there are: {numbers}", "Choose one of these."
            )
        await self._note(Note(f"{WITHDRAWN}\n{rule.text}", about="rule_withdrawn"))
        return rule

    async def _note(self, note: Note) -> None:
        if not self._session.stored:
            raise UsageError("there is no conversation to set rules for yet", "Send a prompt first.")
        if self._is_busy():
            raise UsageError("Not while the agent is working.", "Interrupt it first.")
        await self._session.add_note(note)


GIT_TIMEOUT_S = 5.0
MAX_DIRTY_FILES = 40
_facts = msgspec.json.Decoder(MessageFacts)
_ledger = msgspec.json.Decoder(Ledger)


async def load_ledger(session: LiveSession, store: Store, *, store_missing: bool) -> Ledger:
    """The facts of the whole lineage, this session included. Facts are stored with their messages, so no
    message is read. Missing ones are extracted once, and stored if `store_missing`."""
    info = session.info
    stored = await store.boundaries.load_ledger(info.id)
    phrases = session.phrases() if session.phrases else None

    async def read(session_id: str, last: int = EVERYTHING) -> Sequence[MessageFacts]:
        return await stored_facts(
            store, session_id, FactReader(info.cwd, (), session.phrases), last, store_missing
        )

    if stored:
        before = _ledger.decode(stored)
    else:  # a branch, or a session stored without a ledger; the next boundary stores it
        found: list[MessageFacts] = []
        if info.parent_id is not None and info.kind != "task":
            for session_id, last in (await store.boundaries.load_reach(info.id))[:-1]:
                found += await read(session_id, last)
        generation = max(0, info.generation - 1)
        before = Ledger().merged(found, messages=len(found), generation=generation, phrases=phrases)
    own = await read(info.id)
    return await asyncio.to_thread(
        before.merged, own, messages=len(session.own_messages), generation=info.generation, phrases=phrases
    )


async def stored_facts(
    store: Store, session_id: str, reader: FactReader, last: int = EVERYTHING, store_missing: bool = False
) -> Sequence[MessageFacts]:
    """The facts of each message of a session up to number `last`; `reader` extracts those not stored."""
    rows = await store.messages.load_facts(session_id, last)
    known = [row for row in rows if row is not None]
    if len(known) == len(rows):
        return await asyncio.to_thread(lambda: [_facts.decode(row) for row in known])
    messages = await store.messages.load(session_id)
    found = await asyncio.to_thread(reader.extract_all, messages)
    if store_missing:
        missing = {
            message.id: one for message, one, row in zip(messages, found, rows, strict=False) if row is None
        }
        await store.messages.save_facts(session_id, missing)
    return found[: len(rows)]


async def take_snapshot(info: SessionInfo, workspace: ToolContext) -> WorkspaceSnapshot:
    """The state beyond the messages: git, jobs, todos and grants."""
    return WorkspaceSnapshot(
        cwd=str(workspace.cwd),
        todos=info.todos,
        jobs=tuple(f"{job.id}: {job.command}" for job in workspace.jobs.running()),
        git=await asyncio.to_thread(_git_state, workspace.cwd),
        grants=info.grants,
    )


def _git_state(cwd: Path) -> tuple[str, ...]:
    """HEAD and the dirty files; empty if git is missing or slow, or `cwd` is not a repository."""
    git = partial(git_output, cwd, timeout_s=GIT_TIMEOUT_S)
    head = git("rev-list", "--max-count=1", "--format=%h %s", "HEAD")
    if not head:
        return ()
    status = git("status", "--porcelain", "--ignore-submodules=all", filters=known_filters(cwd))
    dirty = (status or b"").decode("utf-8", "replace").splitlines()
    lines = [
        f"HEAD {head.decode('utf-8', 'replace').splitlines()[-1]}",
        *(f"dirty: {line}" for line in dirty[:MAX_DIRTY_FILES]),
    ]
    if len(dirty) > MAX_DIRTY_FILES:
        lines.append(f"and {len(dirty) - MAX_DIRTY_FILES} more dirty files")
    return tuple(lines)
