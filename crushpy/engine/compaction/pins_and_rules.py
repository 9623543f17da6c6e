"""What every boundary carries verbatim, pins and standing rules, as the user changes them; and the facts of a
lineage."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import msgspec

from crushpy.context.carried import CarriedPins, PinView, carry_pins, pin_limit, pins_text
from crushpy.context.evidence import WorkspaceSnapshot
from crushpy.context.facts import NOTHING, FactReader, MessageFacts, facts_left
from crushpy.context.ledger import Ledger
from crushpy.context.overrides import apply_overrides, shorten_text, users_edits
from crushpy.context.standing_rules import (
    ADDED,
    SUPERSEDED,
    WITHDRAWN,
    CarriedRules,
    RuleFact,
    RulePhrases,
    carry_rules,
    meant_rule,
    replaced_rule,
)
from crushpy.core.errors import UsageError
from crushpy.core.events import Notice, RuleChanged
from crushpy.core.ids import new_id
from crushpy.core.messages import Data, Message, MessageOverride, Note, Overrides, Pin, ToolCall, counted
from crushpy.core.templates import PHRASES, Templates, read_phrases, read_template
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.session.session import LiveSession
from crushpy.security.redact import redact
from crushpy.security.safe_git import git_output, known_filters
from crushpy.security.sanitize import encodable, one_line
from crushpy.storage.records import EVERYTHING, SessionInfo
from crushpy.storage.store import Store
from crushpy.tools.base import CallContext, Workspace
from crushpy.tools.errors import NotText, ToolError
from crushpy.tools.files.locate import NamedText
from crushpy.tools.files.text_file import normalize
from crushpy.tools.view import ViewTool
from crushpy.util.uncancellable import uncancellable

MAX_FILE_CHARS = 1_000_000
"""A longer file cannot be pinned; of one that grew longer only both ends are read."""
MAX_PINS = 100
"""Per conversation: each is read at every boundary."""
PROPOSAL = "the agent proposes to pin this: every compaction would carry it verbatim"


class PinList(Data, frozen=True, omit_defaults=False):
    pins: tuple[PinView, ...]
    tokens: int
    """Of all of them together."""
    limit: int


class PinService:
    """Pins belong to the conversation: all its sessions share them.

    A pinned file is read only if `view` may read it without a question: when it is pinned, and each time
    it is carried.
    """

    def __init__(self, scope: AgentScope) -> None:
        self._scope, self._session, self._gauge = scope, scope.session, scope.gauge
        self._store, self._workspace = scope.services.store, scope.services.workspace
        self._approvals = scope.services.approvals
        self._root = scope.session.info.root_id
        self._decided: set[str] = set()
        """Proposals of the agent that the user has decided about."""

    async def add_text(self, text: str) -> PinView:
        if not text.strip():
            raise UsageError("there is nothing to pin: the text is empty")
        return await self._add(Pin(0, "text", encodable(text.strip()), created_at=time.time()))

    async def add_file(self, path: str) -> PinView:
        """Pins a file as it will be at each boundary."""
        try:
            file = await asyncio.to_thread(self._open, path)
        except NotText as error:
            raise UsageError(f"{error.shown} is a binary file: only text can be pinned") from error
        except ToolError as error:
            raise UsageError(f"this file cannot be pinned: {error}") from error
        size = len(file.file.text)
        if size > MAX_FILE_CHARS:
            raise UsageError(f"{file.shown} is too large to be pinned: it has {size:,} characters")
        return await self._add(Pin(0, "file", source=encodable(str(file.real)), created_at=time.time()))

    async def add_message(self, message_id: str) -> PinView:
        """Pins the text of a message of this conversation; a unique prefix of its id is enough."""
        self._require_stored()
        here = self._session.info.id
        place = await self._store.messages.find(message_id, within=here)
        message = await self._store.messages.get(place.message_id, within=here)
        text = encodable((message.result.text if message.result else message.text).strip())
        if not text:
            raise UsageError(f"message {message.id} has no text that could be pinned")
        return await self._add(Pin(0, "message", text, message.id, time.time()))

    async def remove(self, number: int) -> Pin:
        """Removes a pin. `UsageError` if there is none of that number."""
        return await self._store.pins.remove(self._root, number)

    async def listed(self) -> PinList:
        contents = await self._contents(await self._pins())
        if contents:
            await asyncio.to_thread(self._gauge.load)
        pins = self._views(contents)
        return PinList(pins, sum(pin.tokens for pin in pins), self._limit())

    async def offer(self, call: ToolCall, proposed: Sequence[str]) -> None:
        """Asks the user once about each text that the agent proposes with `new_session`. Without a user
        nothing is pinned; the new session is opened in any case."""
        known = self._decided.union(pin.text for pin in await self._pins())
        stripped = dict.fromkeys(text.strip() for text in proposed)
        texts = [text for text in stripped if text and text not in known]
        if not texts:
            return
        emit = self._scope.emit
        if not self._approvals.interactive:
            many = counted(len(texts), "pin")
            emit(Notice(f"The agent proposed {many}; nothing was pinned, because no user can be asked."))
            return
        question = ToolCall(new_id(), call.name, {"pin": "\n".join(f"- {text}" for text in texts)})
        accepted = await self._approvals.confirm(question, "Pin this?", PROPOSAL, "pin", "don't pin")
        self._decided.update(texts)
        for text in texts if accepted else ():
            try:
                await self.add_text(text)
            except UsageError as error:
                emit(Notice(f"Not pinned: {error}", "warning"))

    async def carried(self) -> CarriedPins:
        """All pins as they are now, within their budget. A pin that cannot be read does not fail it."""
        contents = await self._contents(await self._pins())
        return carry_pins(contents, self._limit(), self._gauge.count) if contents else CarriedPins()

    def _limit(self) -> int:
        window = self._gauge.window(self._session.info.model)
        return pin_limit(self._scope.settings.compaction.pin_tokens, window)

    async def _pins(self) -> list[Pin]:
        return await self._store.pins.load(self._root) if self._session.stored else []

    def _require_stored(self) -> None:
        if not self._session.stored:
            raise UsageError("there is no conversation to pin this to yet", "Send a prompt first.")

    async def _add(self, pin: Pin) -> PinView:
        self._require_stored()
        await asyncio.to_thread(self._gauge.load)
        pins = await self._pins()
        what = pin.kind, pin.text, pin.source
        same = next((pin for pin in pins if (pin.kind, pin.text, pin.source) == what), None)
        if same is not None:
            raise UsageError(f"this is pinned already, as number {same.number}")
        if len(pins) >= MAX_PINS:
            raise UsageError(f"there are {MAX_PINS} pins already", "Unpin one first.")
        *others, new = await self._contents([*pins, pin])
        limit, count = self._limit(), self._gauge.count
        taken = count(pins_text(others))
        size = count(pins_text([*others, new])) - taken
        if taken + size > limit:
            left = f"{max(0, limit - taken):,} of {limit:,} are left for pins"
            raise UsageError(
                f"this does not fit: it takes {size:,} tokens, and {left}",
                "Pin less of it, unpin something, or raise compaction.pin_tokens (at most 5% of the window).",
            )
        added = await self._store.pins.add(self._root, pin)
        return self._views([*others, msgspec.structs.replace(new, number=added.number)])[-1]

    async def _contents(self, pins: list[Pin]) -> list[PinView]:
        edits = users_edits(await self._store.boundaries.load_overrides(self._session.info.id))
        return await asyncio.to_thread(lambda: [self._content(pin, edits.get(pin.source)) for pin in pins])

    def _content(self, pin: Pin, edit: MessageOverride | None) -> PinView:
        """`edit`: how the user edited the message that is pinned."""
        name, text, problem = pin.source, pin.text, ""
        if edit is not None:
            shortened = edit.kind == "shorten"
            text, problem = (shorten_text(text, edit), "") if shortened else ("", "its message was dropped")
        if pin.kind == "file":
            name = encodable(self._workspace.shown(Path(pin.source)))
            text, problem = self._file_content(pin.source)
        return PinView(pin.number, pin.kind, name, redact(text), problem, created_at=pin.created_at)

    def _file_content(self, path: str) -> tuple[str, str]:
        """Its text, and why there is none."""
        try:
            text, half = encodable(normalize(self._open(path).file.text)), MAX_FILE_CHARS // 2
        except ToolError as error:
            return "", str(error).rstrip(".")
        return text if len(text) <= MAX_FILE_CHARS else f"{text[:half]}\n{text[-half:]}", ""

    def _open(self, path: str) -> NamedText:
        """A file that `view` may read without a question. Raises ToolError."""
        context = CallContext(self._workspace)
        decision = self._approvals.judge(ViewTool().touches(context.real_path(path)))
        if decision.verdict != "allow":
            raise ToolError(f"it may not be read now: {decision.reason}")
        return context.open_text(path)

    def _views(self, contents: list[PinView]) -> tuple[PinView, ...]:
        """Each with the tokens that it adds to all before it, so that they add up to what is carried."""
        sizes = [self._gauge.count(pins_text(contents[:number])) for number in range(len(contents) + 1)]
        return tuple(
            msgspec.structs.replace(content, tokens=after - before)
            for content, (before, after) in zip(contents, pairwise(sizes), strict=True)
        )


class RuleList(Data, frozen=True, omit_defaults=False):
    rules: tuple[RuleFact, ...]
    """Those that ended included."""
    tokens: int
    """Of all that apply, as far as they fit."""
    limit: int
    left_out: int
    """How many would be left out at a boundary now."""
    unconfirmed: tuple[str, ...] = ()
    """Sentences of an imported session that look like rules and are none unless the user adds them."""

    @property
    def valid(self) -> list[RuleFact]:
        """Those that apply."""
        return [rule for rule in self.rules if not rule.ended]

    @property
    def guessed_ends(self) -> list[RuleFact]:
        """Those that an earlier version ended by a guess, and that nobody restored."""
        applying = {rule.text for rule in self.valid}
        return [rule for rule in self.rules if rule.ended == SUPERSEDED and rule.text not in applying]

    def state(self, rule: RuleFact) -> str:
        """Who set it, and how it ended, or which earlier one it seems to replace, or what asks to end it:
        these questions stay open until the user ends a rule."""
        earlier = [known for known in self.valid if known.number < rule.number]
        old = None if rule.ended else replaced_rule(rule.text, earlier)
        ended = "ended by an earlier version" if rule.ended == SUPERSEDED else rule.ended
        asked = f'end it? "{one_line(rule.asked)}"' if rule.asked and not ended else ""
        return ", ".join(filter(None, (rule.setter, ended, f"replaces {old.number}?" if old else "", asked)))

    @property
    def offer(self) -> str:
        """What to say about unconfirmed ones; empty if there are none."""
        return _imported_rules(len(self.unconfirmed)) if self.unconfirmed else ""


IMPORTED = "of the imported session"


def _imported_rules(many: int) -> str:
    words = "look like rules" if many > 1 else "looks like a rule"
    return f"{counted(many, 'sentence')} {IMPORTED} {words}"


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


async def _known(scope: AgentScope) -> Ledger:
    return await load_ledger(scope.session, scope.services.store, store_missing=False)


async def add_prompt(scope: AgentScope, prompt: Message, *, steers: bool = False) -> None:
    """Commits a prompt, and tells which rules it has, which earlier ones they seem to replace, and which do
    not fit."""
    said = (await scope.session.add_prompt(prompt, steers=steers)).statements or ()
    imported = bool(scope.session.info.imported) and not scope.task
    if not imported and not any(statement.rule or statement.edit for statement in said):
        return
    ledger = await _known(scope)
    store, here = scope.services.store, scope.session.info.id
    lineage = await store.sessions.load_lineage(here) if ledger.unconfirmed else ()
    notes = [note for session in lineage for note in await store.notes.load(session.id)]
    if lineage and all(IMPORTED not in note.text for note in notes):
        scope.emit(Notice(f"{_imported_rules(len(ledger.unconfirmed))}. /rules lists them."))
    valid = [rule for rule in ledger.rules or () if not rule.ended]
    before = [rule for rule in valid if rule.message_id != prompt.id]
    new = (rule for rule in valid if rule.message_id == prompt.id)
    found = [(rule.text, str(rule.number), replaced_rule(rule.text, before)) for rule in new]
    asked = [statement.text for statement in said if statement.edit == "asked"]
    found += [(text, "", rule) for text in asked if (rule := meant_rule(text, before))]
    for text, number, old in found:
        scope.emit(RuleChanged(text, "found", number, *((old.text, str(old.number)) if old else ())))
    if found and (carried := await carried_rules(scope, ledger)).left_out:
        scope.emit(Notice(f"{carried.warning[0].upper()}{carried.warning[1:]}.", "warning"))


class RuleService:
    """A change is a note in the session: the model sees it with the next request, and forks inherit it."""

    def __init__(self, scope: AgentScope, is_busy: Callable[[], bool]) -> None:
        self._scope, self._session, self._is_busy = scope, scope.session, is_busy
        self._ending: list[RuleFact] = []
        """Those that end with the next step: no note may stand between a call and its result."""

    async def count(self) -> int:
        """How many apply."""
        rules = (await _known(self._scope)).rules if self._session.stored else ()
        return sum(not rule.ended for rule in rules or ())

    async def listed(self) -> RuleList:
        await asyncio.to_thread(self._scope.gauge.load)
        ledger = await _known(self._scope)
        carried = await carried_rules(self._scope, ledger)
        rules, known = ledger.rules or (), {rule.text for rule in ledger.rules or ()}
        unconfirmed = tuple(text for text in ledger.unconfirmed if text not in known)
        return RuleList(rules, carried.tokens, rule_limit(self._scope), carried.left_out, unconfirmed)

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
        origin = self._scope.services.origin
        foreign = origin if origin in ("sdk", "fleet") else ""
        await self._note(Note(f"{ADDED}\n{text}", about="rule", origin=foreign))
        return (await self.listed()).valid[-1]

    async def drop(self, number: int) -> RuleFact:
        """Withdraws a rule, in a turn with its next step. `UsageError` if none of that number applies."""
        valid = {rule.number: rule for rule in (await self.listed()).valid if rule not in self._ending}
        rule = valid.get(number)
        if rule is None:
            numbers = ", ".join(map(str, valid)) or "none"
            raise UsageError(
                f"there is no standing rule {number}; there are: {numbers}", "Choose one of these."
            )
        self._ending.append(rule)
        if not self._is_busy():
            await self.end_withdrawn()
        return rule

    async def end_withdrawn(self) -> None:
        """Ends the rules that were withdrawn; when every call has its result."""
        while self._ending:
            rule = self._ending.pop(0)
            note = Note(f"{WITHDRAWN}\n{rule.text}", about="rule_withdrawn")
            await uncancellable(self._session.add_note(note))
            self._scope.emit(RuleChanged(rule.text, "ended", str(rule.number)))

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


async def load_ledger(
    session: LiveSession, store: Store, *, store_missing: bool, before: SessionInfo | None = None
) -> Ledger:
    """The facts of the whole lineage, this session included, or only those `before` one of its sessions. They
    lack what the user dropped. Facts are stored with their messages, so no message is read. Missing ones are
    extracted once, and stored if `store_missing`. Imported prompts set no rules: they are not the user's
    words here."""
    info = before or session.info
    stored = await store.boundaries.load_ledger(info.id)
    phrases = session.phrases() if session.phrases else None
    edits = users_edits(await store.boundaries.load_overrides(info.id))
    kinds = {message_id: edit.kind for message_id, edit in edits.items()}
    foreign = ImportedPrompts(await _last_imported(store, info.root_id))

    async def read(session_id: str, last: int = EVERYTHING) -> Sequence[MessageFacts]:
        reader = FactReader(info.cwd, (), session.phrases, redact)
        return await stored_facts(store, session_id, reader, last, store_missing, edits, foreign)

    ledger = _ledger.decode(stored) if stored and before is None else None
    own_ids = {message.id for message in session.own_messages}
    edited = {message_id: kind for message_id, kind in kinds.items() if message_id not in own_ids}
    if ledger is None or ledger.seen_names is None or foreign.last or ledger.edits != edited:
        # A fork, a branch, imported, stored without a ledger or names, or before an
        # edit; the next boundary stores it.
        found: list[MessageFacts] = []
        if info.parent_id is not None and info.kind != "task":
            for session_id, last in (await store.boundaries.load_reach(info.id))[:-1]:
                found += await read(session_id, last)
        guessed = [rule for rule in (ledger and ledger.rules) or () if rule.ended == SUPERSEDED]
        ledger = Ledger().merged(found, phrases=phrases).with_ended(guessed)
    own = await read(info.id) if before is None else ()
    ledger = msgspec.structs.replace(ledger, edits=kinds, unconfirmed=tuple(foreign.rules))
    return await asyncio.to_thread(ledger.merged, own, phrases=phrases)


async def _last_imported(store: Store, root_id: str) -> int:
    """The number of the last imported message of a conversation; 0 if none was imported."""
    last = await store.imports.find_last_message(root_id)
    return (await store.messages.load_numbers([last])).get(last, 0) if last else 0


class ImportedPrompts:
    """Takes the rules out of the facts of imported messages, and keeps their sentences."""

    def __init__(self, last: int = 0) -> None:
        """`last`: the number of the last imported message. What was said here has a higher one."""
        self.last = last
        self.rules: list[str] = []
        """The sentences that look like rules."""

    def without_rules(self, number: int, facts: MessageFacts) -> MessageFacts:
        if number > self.last:
            return facts
        said = facts.statements or ()
        self.rules += (statement.text for statement in said if statement.rule)
        plain = tuple(msgspec.structs.replace(statement, rule=False) for statement in said)
        return msgspec.structs.replace(facts, statements=plain)


async def stored_facts(
    store: Store,
    session_id: str,
    reader: FactReader,
    last: int = EVERYTHING,
    store_missing: bool = False,
    edits: Overrides = MappingProxyType({}),
    imported: ImportedPrompts | None = None,
) -> Sequence[MessageFacts]:
    """The facts of each message of a session up to number `last`; `reader` extracts those not stored.
    `edits` of the user leave out what is not sent, and messages that were `imported` have no rules."""
    imported = imported or ImportedPrompts()
    rows = await store.messages.load_facts(session_id, last)
    known = {message_id: row for message_id, _, row in rows if row is not None}
    found = await asyncio.to_thread(lambda: [_facts.decode(row) for row in known.values()])
    if len(known) < len(rows) or any(facts.names is None for facts in found):
        stored = dict(zip(known, found, strict=True))
        messages = await store.messages.load(session_id)
        read = await asyncio.to_thread(reader.extract_all, messages)
        every = dict(zip((message.id for message in messages), read, strict=True))
        for name, facts in stored.items():
            named = facts.names is not None
            every[name] = facts if named else msgspec.structs.replace(facts, names=every[name].names)
        found = list(every.values())
        if store_missing:
            missing = {name: facts for name, facts in every.items() if facts is not stored.get(name)}
            await store.messages.save_facts(session_id, missing)
    is_edited = any(message_id in edits for message_id, _, _ in rows)
    own = await store.messages.load(session_id) if is_edited else ()
    shown = {message.id: message for message in apply_overrides(own, edits)}

    def left(message_id: str, number: int, facts: MessageFacts) -> MessageFacts:
        if message_id in edits:
            facts = facts_left(facts, shown[message_id]) if message_id in shown else NOTHING
        return imported.without_rules(number, facts)

    return [left(*row[:2], facts) for row, facts in zip(rows, found, strict=False)]


async def take_snapshot(info: SessionInfo, workspace: Workspace, dropped: str) -> WorkspaceSnapshot:
    """The state beyond the messages: git, jobs, todos and grants. Jobs and grants are shown without what the
    messages said that the user dropped."""
    running = workspace.jobs.running()
    return WorkspaceSnapshot(
        cwd=str(workspace.cwd),
        todos=info.todos,
        jobs=tuple(job.id if job.command in dropped else f"{job.id}: {job.command}" for job in running),
        git=await asyncio.to_thread(_git_state, workspace.cwd),
        grants=tuple(_grant_without(grant, dropped) for grant in info.grants),
    )


def _grant_without(grant: str, dropped: str) -> str:
    tool, _, pattern = grant.removesuffix(")").partition("(")
    repeats = pattern.strip(" *") and all(part.strip() in dropped for part in pattern.split("*"))
    return f"{tool}(…)" if repeats else grant


def _git_state(cwd: Path) -> tuple[str, ...]:
    """HEAD and the dirty files; empty if git is missing or slow, or `cwd` is not a repository."""
    git = partial(git_output, cwd, timeout_s=GIT_TIMEOUT_S)
    head = git("rev-list", "--max-count=1", "--format=%h %s", "HEAD")
    if not head:
        return ()
    status = git("status", "--porcelain", "--ignore-submodules=all", filters=known_filters(cwd))
    dirty = (status or b"").decode("utf-8", "replace").splitlines()
    more = len(dirty) - MAX_DIRTY_FILES
    shown = [f"dirty: {line}" for line in dirty[:MAX_DIRTY_FILES]]
    shown += [f"and {more} more dirty files"] if more > 0 else []
    return f"HEAD {head.decode('utf-8', 'replace').splitlines()[-1]}", *shown
