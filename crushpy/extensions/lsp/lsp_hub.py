"""What the language servers of a workspace say: with results after edits, and to the tool `lsp`."""

import asyncio
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from crushpy.core.events import Notice
from crushpy.core.messages import Data, FileList, counted
from crushpy.core.own_tags import DIAGNOSTICS
from crushpy.engine.hooks import ObservedCall
from crushpy.extensions.lsp.language_server import Diagnostic, LanguageServer, path_of, read_source
from crushpy.security.redact import redact
from crushpy.security.sanitize import clean, encodable, one_line
from crushpy.settings.schema import LspSettings
from crushpy.tools.base import CallContext, LspArgs, Outcome
from crushpy.tools.errors import ToolError, reason
from crushpy.tools.files.text_file import normalize, split_lines
from crushpy.tools.grep import Matches
from crushpy.tools.search.files_below import NOT_SEARCHED
from crushpy.tools.shell.jobs import Jobs
from crushpy.util.spawn import spawn

MAX_LINES, MAX_PROBLEMS, MAX_MESSAGE_CHARS = 10, 200, 300
HINT = 4
_SEVERITIES = {2: "warning", 3: "information"}
_DIGITS = re.compile(r"\d+")


class Findings(Data, frozen=True):
    """What one server says about one file."""

    new: Sequence[Diagnostic] = ()
    older: int = 0
    """Problems that were there before."""
    unknown: str = ""
    """Why it is not known."""


Key = tuple[str, LanguageServer]
"""A file, and a server that knows it."""


class AgentEdits(msgspec.Struct):
    """What one agent has changed, with the text before; None for a new file."""

    session_id: str = ""
    due: dict[Key, str | None] = {}
    """Not reported yet."""
    troubled: dict[Key, str | None] = {}
    """Not reported as clean."""
    pending: dict[Key, asyncio.Task[Findings]] = {}


class LspHub:
    """The servers of one workspace, for all agents in it."""

    def __init__(
        self,
        cwd: Path,
        commands: Sequence[tuple[str, tuple[str, ...]]],
        settings: LspSettings,
        new_jobs: Callable[[], Jobs],
        emit: Callable[[Notice], None],
    ) -> None:
        """`commands`: with the endings of the files that each is for."""
        self._root, self._wait = Path(os.path.realpath(cwd)), settings.wait
        common = (self._root, settings.idle, new_jobs, emit)
        self.servers = [LanguageServer(endings.split(), command, *common) for endings, command in commands]
        self._agents = defaultdict[str, AgentEdits](AgentEdits)

    def _keys(self, path: str) -> list[Key]:
        inside, suffix = Path(path).is_relative_to(self._root), Path(path).suffix
        return [(path, server) for server in self.servers if inside and suffix in server.endings]

    async def close(self) -> None:
        for task in [task for edits in self._agents.values() for task in edits.pending.values()]:
            task.cancel()
        await asyncio.gather(*(server.stop() for server in self.servers))

    async def attach(self, outcome: Outcome, observed: ObservedCall) -> Outcome:
        """Adds what edits have caused: after the last one of a reply, and later what was not known then."""
        edits = self._agents[observed.task]
        if edits.session_id not in ("", observed.session_id):  # what was said may not be in the context
            edits.due, edits.pending = edits.troubled | edits.due, {}
        edits.session_id = observed.session_id
        path, before = outcome.changed or ("", None)
        for key in self._keys(path):
            edits.due.setdefault(key, before)
            edits.pending.pop(key, None)
        started = [] if observed.more_edits else [key for key in edits.due if key not in edits.pending]
        for key in started:
            edits.pending[key] = spawn(self._examine(key, edits.due[key]))
        if started:
            await asyncio.wait(edits.pending.values(), timeout=self._wait)
        found: dict[Key, Findings] = {}
        for key, task in list(edits.pending.items()):
            if task.done():
                one = found[key] = edits.pending.pop(key).result()
                edits.troubled.setdefault(key, edits.due.pop(key))
                if not one.new and not one.unknown:
                    del edits.troubled[key]
            elif key in started:
                found[key] = Findings(unknown="not known yet, comes with a later result")
        lines = self._lines(found, "new problem")
        if len(lines) > MAX_LINES:
            lines[MAX_LINES - 1 :] = ['[more: lsp(action="diagnostics") lists all problems of a file]']
        added = DIAGNOSTICS + "\n".join(lines) if lines else ""
        return msgspec.structs.replace(outcome, attached=outcome.attached + added)

    def _lines(self, found: Mapping[Key, Findings], what: str) -> list[str]:
        """A line for each file and server, problems first, and one for each problem."""
        lines: list[str] = []
        for (path, server), report in sorted(found.items(), key=lambda each: not each[1].new):
            older = f" ({report.older:,} from before)" if report.older else ""
            said = counted(len(report.new), what) if report.new else "no new problems" if older else "clean"
            lines.append(f"{self._shown(path)}, {server.name}: {report.unknown or said + older}")
            lines += _rows(report.new[:MAX_PROBLEMS])
        return lines

    def _shown(self, path: str) -> str:
        return encodable(str(Path(path).relative_to(self._root)))

    async def _examine(self, key: Key, before: str | None) -> Findings:
        """Compares what a server says with what it says about the text before."""
        path, server = key
        while True:
            try:
                text = await asyncio.to_thread(read_source, path)
                old, now = await server.diagnose(path, encodable(before), text)
                return Findings(*await asyncio.to_thread(compare, before, old, text, now))
            except ConnectionError:
                continue  # it is started again, until it is off
            except (ToolError, OSError) as error:
                return Findings(unknown=f"not known: {one_line(reason(error))}")

    async def ask(self, args: LspArgs, context: CallContext) -> Outcome:
        path = context.real_path(args.file_path)
        keys = self._keys(path)
        if not keys:
            known = " ".join(ending for server in self.servers for ending in server.endings)
            raise ToolError(f"Language servers know only files of the workspace that end with {known}.")
        try:
            text = await asyncio.to_thread(read_source, path)
        except OSError as error:
            raise ToolError(f"{args.file_path} cannot be read: {reason(error)}") from None
        if args.action == "diagnostics":
            found = await asyncio.gather(*(self._examine(key, None) for key in keys))
            return Outcome("\n".join(self._lines(dict(zip(keys, found, strict=True)), "problem")))
        method, provider, asked = "workspace/symbol", "workspaceSymbol", [dict[str, Any](query=args.query)]
        if args.action != "symbols":
            method, provider = f"textDocument/{args.action}", args.action
            about = {"textDocument": {"uri": Path(path).as_uri()}, "context": {"includeDeclaration": True}}
            asked = [{**about, "position": position} for position in _positions(text, args)]
        for _, server in keys:
            async with server.ready_for(path):
                if server.capabilities.get(f"{provider}Provider"):
                    server.show(path, text)
                    answers = await asyncio.gather(*(server.request(method, params) for params in asked))
                    return self._places(answers, context)
        raise ToolError(f"{', '.join(server.name for _, server in keys)} cannot find {args.action}.")

    def _places(self, answers: Sequence[Any], context: CallContext) -> Outcome:
        """The places that a server names, each once, within the limits and the path rules of grep."""
        is_skipped = context.agent.find_skipped("lsp", context.workspace.cwd, self._root)
        found, texts = Matches(lambda path: path, context.agent.result_chars()), dict[str, list[str]]()
        for path, line, name in dict.fromkeys(place for answer in answers for place in _read_places(answer)):
            real = os.path.realpath(path)
            if not Path(real).is_relative_to(self._root):
                found.add(path, str(line + 1), f"(outside the workspace){name}")
            elif not (is_skipped and is_skipped(str(Path(real).relative_to(self._root)))):
                try:
                    texts[real] = texts.get(real) or split_lines(normalize(read_source(real)))
                    found.add(self._shown(real), str(line + 1), clean(texts[real][line].strip()) + name)
                except (OSError, ToolError, IndexError):
                    continue  # the file is gone, or has changed
        rows = [f"{path}:{row}" for path, rows in found.by_file.items() for row in rows]
        notes = [f"[{found.total - found.kept:,} more left out]"] if found.total > found.kept else []
        notes += [NOT_SEARCHED] if is_skipped else []
        text = "\n".join((*(rows or ["Nothing was found."]), *notes))
        return Outcome(text, display=FileList(tuple(rows), found.total))


def _read_places(answer: Any) -> Iterator[tuple[str, int, str]]:
    """The path, line and name of each place, whichever form of the protocol an answer has."""
    for entry in cast("list[Any]", answer if isinstance(answer, list) else [answer]):
        try:
            place: dict[str, Any] = entry.get("location") or entry
            start = (place.get("targetSelectionRange") or place["range"])["start"]
            name = f"  ({one_line(str(entry['name']))})" if "name" in entry else ""
            yield path_of(place.get("targetUri") or place["uri"]), max(int(start["line"]), 0), name
        except (LookupError, TypeError, AttributeError, ValueError):
            continue


def _positions(text: str, args: LspArgs) -> list[dict[str, int]]:
    """Where a name is, in the units of the protocol: at the column, or each time that the line has it."""
    lines = split_lines(normalize(text))
    line = lines[args.line - 1] if 1 <= args.line <= len(lines) else ""
    name = _whole_name(args.query.strip())
    starts = [args.column - 1] if args.column else [found.end() for found in name.finditer(line)]
    starts = [start for start in starts if 0 <= start < len(line)]
    if not starts:
        others = [str(number) for number, other in enumerate(lines, 1) if name.search(other)][:MAX_LINES]
        where = f" {args.query} is on line {', '.join(others)}." if args.query and others else ""
        raise ToolError(f"Give the line and the column of a name, or the line and in query the name.{where}")
    return [
        {"line": args.line - 1, "character": len(line[:start].encode("utf-16-le")) // 2} for start in starts
    ]


def _whole_name(query: str) -> re.Pattern[str]:
    """Matches up to the last name in `query`: in `shop.tax`, up to `tax`. A name is not a part of another."""
    *before, name = re.split(r"(?<=[^\w$])(?=[\w$])", query) or [""]
    end = r"(?![\w$])" if re.search(r"[\w$]\Z", name) else ""
    begin = r"(?<![\w$])" if re.match(r"[\w$]", query) else ""
    return re.compile(f"{begin}{re.escape(''.join(before))}(?={re.escape(name)}{end})" if query else r"(?!)")


def _rows(found: Sequence[Diagnostic]) -> Iterator[str]:
    for problem in found:
        origin = " ".join(str(each) for each in (problem.source, problem.code) if each)
        text = f"{_SEVERITIES.get(problem.severity or 1, 'error')}: {problem.message[:MAX_MESSAGE_CHARS]}"
        yield f"  {problem.line + 1}: " + encodable(redact(clean(one_line(f"{text} ({origin[:60]})"))))


def compare(
    before: str | None, old: Sequence[Diagnostic], after: str, now: Sequence[Diagnostic]
) -> tuple[list[Diagnostic], int]:
    """The problems that were not there before, errors first, and the number of others.

    Edits move lines: a problem is the same if its line has the same text, or its message is the same.
    """
    old, new = ([problem for problem in found if problem.severity != HINT] for found in (old, now))
    total, lines = len(new), [split_lines(normalize(text)) for text in (before or "", after)]

    def key(problem: Diagnostic, text: list[str], *, exact: bool) -> tuple[object, ...]:
        same = (
            [problem.message]
            if exact
            else [_DIGITS.sub("", problem.message), *text[problem.line : problem.line + 1]]
        )
        return problem.source, problem.code, *same

    for exact in (False, True):
        seen = defaultdict[object, list[Diagnostic]](list)
        for stale in old:
            seen[key(stale, lines[0], exact=exact)].append(stale)
        new = [
            problem
            for problem in new
            if not (same := seen[key(problem, lines[1], exact=exact)]) or not same.pop()
        ]
        old = [problem for rest in seen.values() for problem in rest]
    return sorted(new, key=lambda problem: (problem.severity or 1, problem.line)), total - len(new)
