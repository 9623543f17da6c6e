"""Facts carried over a boundary, built by code from the ledger of the whole lineage.

Deterministic: the same record gives the same bytes. What does not fit is counted, never dropped silently.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from crushpy.context import facts
from crushpy.context.facts import CommandFacts
from crushpy.context.ledger import FileFact, Ledger, RunFact, SeenName
from crushpy.context.names import ShownNames, generic_names
from crushpy.context.tags import Count, element, quoted, safe
from crushpy.core.messages import Data, Todo, counted, shortened

Redact = Callable[[str], str]
EVIDENCE_LINE_CHARS = 400
"""Characters of one command, todo or other line."""
REQUESTS_SHARE = 0.6
"""Of the whole limit. Beyond it requests still come first, but long ones are shortened."""
SHORT_QUOTE_TOKENS = 120
"""Tokens of a long request that is shortened so that it does not crowd out every other fact."""
FIRST_REPLY_TOKENS = 400
"""Tokens of the first reply that are quoted; at most an eighth of the whole limit."""
NAMES_TITLE = "Names seen"
NAMES_SHARE = 0.85
"""Of their room: the rest is for the files and commands that showed them."""
NAMES_RESERVE = 4
"""At least this part of the whole limit is for names, before old commands."""
MIN_NAME_TOKENS = 3
"""Fewer names have fewer tokens, the comma included."""
MIN_GROUP = 3
"""Fewer names are listed without the file or command that showed them."""
MIN_FIRST_REPLY_TOKENS = 15
"""A shorter quote of the first reply is useless."""


class WorkspaceSnapshot(Data, frozen=True):
    """The state of the workspace at the boundary, which the messages do not contain."""

    cwd: str = "/"
    todos: tuple[Todo, ...] = ()
    jobs: tuple[str, ...] = ()
    git: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()


class Entry(Data, frozen=True):
    """One fact. Entries are in order of priority; `place` says where each is shown."""

    text: str
    place: tuple[str, ...] | int
    group: str = ""
    """What several entries have in common is shown once, above them."""


class Section(Data, frozen=True):
    title: str
    entries: tuple[Entry, ...]
    counted: bool = True
    """Omitted entries are counted in the note at the end."""
    old: bool = False
    """Commands and files of which nothing is open."""


def build_evidence(
    ledger: Ledger,
    around: WorkspaceSnapshot,
    *,
    limit: int,
    request_limit: int,
    count: Count,
    redact: Redact = lambda text: text,
    lean: bool = False,
    beside: str = "",
) -> str:
    """The evidence as text, at most `limit` tokens; a single request above `request_limit` is shortened.
    `lean`: names come before old commands. `beside`: what the child starts with besides, whose names are not
    repeated."""
    first = ledger.first_reply
    found = _Facts(
        [facts.Quote(request.id, redact(request.text)) for request in ledger.requests],
        facts.Quote(first.id, redact(first.text)) if first else None,
        list(_sections(ledger, around, redact)),
        ledger.dropped,
        request_limit,
        count,
        _NameList(ledger.seen_names or {}, around.cwd, beside, redact, count),
        lean,
    )
    room = limit
    while room > 0:
        text = _filled(found, room)
        over = count(text) - limit
        if over <= 0:
            return text
        room -= over + 1  # joined lines may have more tokens than single ones
    return ""


class _Facts(Data, frozen=True):
    """Everything that evidence may contain, and how it is measured."""

    asked: Sequence[facts.Quote]
    reply: facts.Quote | None
    sections: Sequence[Section]
    gone: dict[str, int]
    """What is no longer carried because of its age, by kind."""
    request_limit: int
    count: Count
    names: "_NameList"
    lean: bool


def _filled(found: _Facts, room: int) -> str:
    """Everything, or as much as leaves space for a note about what is missing."""
    blocks, left_out = _fill(found, room)
    if not left_out:
        return "\n".join(blocks)
    for note in (_note, _short_note):
        reserve = found.count(note(left_out)) + 6  # the note itself may displace more
        if reserve <= room // 4:
            blocks, left_out = _fill(found, room - reserve)
            return "\n".join((*blocks, note(left_out)))
    return "\n".join(blocks)


def _fill(found: _Facts, room: int) -> tuple[list[str], dict[str, int]]:
    """What fits into `room`, by priority, and how much of each kind does not."""
    asked, count, left_out = found.asked, found.count, dict(found.gone)
    most, reply, answer = min(FIRST_REPLY_TOKENS, room // 8), found.reply, ""
    if reply is not None and most >= MIN_FIRST_REPLY_TOKENS:
        text = quoted(reply.text, most, count, f"recall {reply.id}")
        answer = element("note", text, id=reply.id, what="first answer")
    room -= count(answer) + 1 if answer else 0
    requests, spent = _requests(asked, room, found.request_limit, count)
    if len(requests) < len(asked):
        left_out["requests"] = left_out.get("requests", 0) + len(asked) - len(requests)
    blocks = [requests[number] for number in sorted(requests)]
    if answer:
        blocks.insert(1 if 0 in requests else 0, answer)
    room, held, least = room - spent, 0, room // NAMES_RESERVE
    for section in found.sections:
        if section.old and not held:
            held = found.names.reserve(room if found.lean else min(room, least), "\n".join(blocks))
            room -= held
        kept, spent = _fit(section, room, count)
        if kept:
            blocks.append(_shown(section.title, kept))
            room -= spent
        if len(kept) < len(section.entries) and section.counted:
            left_out[section.title.lower()] = len(section.entries) - len(kept)
    if names := found.names.fill(room + held, "\n".join(blocks)):
        blocks.append(names)
    return blocks, left_out


def _note(left_out: dict[str, int]) -> str:
    return "Left out, recall finds them: " + ", ".join(f"{title} {n}" for title, n in left_out.items())


def _short_note(left_out: dict[str, int]) -> str:
    return f"Left out, recall finds them: {sum(left_out.values())} facts"


class _NameList:
    """Names that results showed and the agent used, in the room that everything else leaves."""

    def __init__(
        self,
        by_source: Mapping[str, Sequence[SeenName]],
        cwd: str,
        beside: str,
        redact: Redact,
        count: Count,
    ) -> None:
        self._prefix, self._redact = f"{cwd.rstrip('/')}/", redact
        shown = ShownNames(beside.replace(self._prefix, ""))
        self._sources = {name.name: source for source, names in by_source.items() for name in names}
        names = sorted(chain(*by_source.values()), key=lambda name: name.weight, reverse=True)
        texts = [name.name for name in names if name.name not in generic_names() and name.name not in shown]
        redacted = redact("\n".join(texts)).split("\n")
        pairs = zip(texts, redacted, strict=False) if len(texts) == len(redacted) else ()
        self._names = [name for name, text in pairs if text == name]
        self._count = lru_cache(maxsize=None)(count)

    def reserve(self, room: int, beside: str) -> int:
        """The tokens of `room` that the section will need."""
        if len(self._names) * MIN_NAME_TOKENS > 2 * room:
            return room
        return self._count(self.fill(room, beside)) + 1

    def fill(self, room: int, beside: str) -> str:
        """The section, at most `room` tokens, without names that `beside` contains; empty if none fits."""
        shown, left = ShownNames(beside), room - self._count(NAMES_TITLE) - 4
        reserve = int(left * (1 - NAMES_SHARE))
        by_source = dict[str, list[str]]()
        for name in self._names:
            if left - reserve < MIN_NAME_TOKENS:
                break
            if name in shown or (cost := self._count(name) + 1) > left - reserve:
                continue
            shown.add({name})
            by_source.setdefault(self._sources[name], []).append(name)
            left -= cost
        lines, others = list[str](), by_source.pop("", [])
        for source, members in sorted(by_source.items(), key=lambda group: -len(group[1])):
            heading = safe(shortened_line(self._redact(source.removeprefix(self._prefix))))
            cost = self._count(heading) + 3
            if len(members) < MIN_GROUP or cost > left:
                others += members
                continue
            left -= cost
            lines.append(f"{heading}: {', '.join(members)}")
        lines += [", ".join(others)] if others else []
        return "\n".join((f"{NAMES_TITLE}:", *lines)) if lines else ""


def _requests(
    asked: Sequence[facts.Quote], room: int, request_limit: int, count: Count
) -> tuple[dict[int, str], int]:
    """The first request, then the others from the newest back, by number; and their size.

    All are quoted in full until they fill their share of the room; then long ones are shortened.
    """
    share = int(room * REQUESTS_SHARE)
    kept: dict[int, str] = {}
    spent = 0
    for number in [0, *range(len(asked) - 1, 0, -1)] if asked else []:
        short = min(request_limit, SHORT_QUOTE_TOKENS)
        for most in (request_limit, short) if number else (request_limit, room // 2, room // 4):
            text = quoted(asked[number].text, most, count, f"recall {asked[number].id}")
            block = element("request", text)
            cost = count(block) + 1
            if spent + cost <= (
                share if number and most > SHORT_QUOTE_TOKENS and cost > 2 * SHORT_QUOTE_TOKENS else room
            ):
                kept[number] = block
                spent += cost
                break
    return kept, spent


def _fit(section: Section, room: int, count: Count) -> tuple[list[Entry], int]:
    """The entries that fit, and their size together with the title."""
    spent = count(section.title) + 2
    kept: list[Entry] = []
    groups = {""}
    for entry in section.entries:
        if room - spent < 2:
            break
        cost = count(entry.text) + 1
        if entry.group not in groups:
            cost += count(entry.group) + 2
        if spent + cost <= room:
            kept.append(entry)
            groups.add(entry.group)
            spent += cost
    return kept, spent


def _shown(title: str, entries: Sequence[Entry]) -> str:
    lines = [f"{title}:"]
    for group in dict.fromkeys(entry.group for entry in entries):
        members = sorted((e for e in entries if e.group == group), key=lambda entry: entry.place)
        lines += [f"{group}:"] if group else []
        lines += [entry.text for entry in members]
    return "\n".join(lines)


def _sections(ledger: Ledger, around: WorkspaceSnapshot, redact: Redact) -> Iterable[Section]:
    """Everything but the requests, by priority."""

    def plain(title: str, lines: Iterable[str], *, old: bool = False) -> Section:
        """Lines shown by priority."""
        entries = tuple(Entry(safe(line), number) for number, line in enumerate(lines))
        return Section(title, entries, old=old)

    def line(text: str, limit: int = EVIDENCE_LINE_CHARS) -> str:
        return shortened_line(redact(text), limit)

    def command_line(text: str, times: int) -> str:
        return f"$ {line(text)}" + (f" ({times}x)" if times > 1 else "")

    def failures(title: str, failed: Sequence[RunFact], *, old: bool = False) -> Section:
        return Section(
            title,
            tuple(
                Entry(safe(command_line(run.text, run.failures)), number, safe(_end(run)))
                for number, run in enumerate(failed)
            ),
            old=old,
        )

    def path(file: FileFact) -> str:
        return line(file.path.removeprefix(f"{around.cwd.rstrip('/')}/"))

    newest, files = ledger.commands[::-1], ledger.files[::-1]
    failing = ledger.still_failing()
    repaired = [run for run in newest if run.failures and not run.failed]
    others = [run for run in newest if not run.failures]
    test = ledger.last_test

    if dropped := ledger.dropped_messages:
        words = f"{counted(dropped, 'message')} {'was' if dropped == 1 else 'were'} dropped by the user"
        yield Section("Messages", (Entry(words, 0),), counted=False)
    yield plain("Open todos", (f"- [{t.status}] {line(t.text)}" for t in facts.open_todos(around.todos)))
    yield plain("MCP tools in use", map(line, reversed(ledger.loaded_tools)))
    yield failures("Commands still failing", failing)
    yield _by_folder("Files changed", {path(file): file.action for file in files if file.changed_at})
    if test is not None:
        ended = _end(test) if test.failed else "passed"
        output = (f"  {line(text, 160)}" for text in test.lines)
        yield plain("Last test run", ["\n".join((f"$ {line(test.text)} ({ended})", *output))])
    yield plain("Background jobs running", map(line, around.jobs))
    yield plain("Git", map(line, around.git))
    yield failures("Commands that failed and work by now", repaired, old=True)
    yield _by_folder("Files read", {path(file): "" for file in files if not file.changed_at})
    told = test.text if test else ""
    lines = (command_line(run.text, run.runs) for run in others if run.text != told)
    yield plain("Other commands", lines, old=True)
    yield plain("Granted for this conversation", map(line, around.grants))


def _by_folder(title: str, paths: dict[str, str]) -> Section:
    """Paths by action, grouped by folder; the latest have priority."""
    return Section(
        title,
        tuple(
            Entry(safe(path), (path.rpartition("/")[0], path.rpartition("/")[2]), action)
            for path, action in paths.items()
        ),
    )


def shortened_line(text: str, limit: int = EVIDENCE_LINE_CHARS) -> str:
    """`text` on one line, so that nothing in it can be mistaken for a line of ours."""
    line = " ⏎ ".join(part.strip() for part in text.strip().splitlines() if part.strip())
    return shortened(line, limit)


def _end(run: RunFact | CommandFacts) -> str:
    """The exit status of a failed command, in words."""
    if run.exit_code is not None:
        return f"exit {run.exit_code}"
    return shortened_line(run.note, 60) or "failed"
