"""What the demo understands: a table of ways to ask, and the plan for each."""

import re
from collections.abc import Callable

import msgspec

from crushpy.llm.demo import plans
from crushpy.llm.demo.steps import Plan

_QUOTED = r"(?:\"[^\"]*\"|'[^']*'|`[^`]*`|“[^”]*”)"
_SOME = rf"(?:{_QUOTED}|.+?)"
_PATH = rf"(?:{_QUOTED}|[^\s,;:]*[\w)~\]])"
_FILE = rf"(?:{_QUOTED}|[^\s,;:]*[./][^\s,;:]*[\w)\]])"
"""A path that looks like one: it has a dot or a slash in it."""
_POLITE = re.compile(
    r"^(?:(?:please|now|ok|okay|then|first|next|finally|and|hey|so|well)[,\s]+"
    r"|(?:can|could|would|will) you (?:please )?|let'?s |let us |i(?:'d| would) like you to "
    r"|i want you to )+",
    re.IGNORECASE,
)

_LONGEST = 4_000
"""Characters of a request that could be one of ours; the patterns below are not made for more."""

Groups = dict[str, str]


class Intent(msgspec.Struct, frozen=True):
    """A way to ask: what the words look like, and what to do. The first that matches is meant."""

    pattern: str
    plan: Callable[[Groups], Plan]


INTENTS = (
    # a change to a file
    Intent(
        rf"(?:replace|change|swap) (?P<all>all |every )?(?P<old>{_SOME}) (?:with|by|to|for) "
        rf"(?P<new>{_SOME}) in (?:the )?(?:file )?(?P<file>{_PATH})(?P<every> everywhere| throughout)?",
        lambda g: plans.replace(g["file"], g["old"], g["new"], bool(g["all"] or g["every"])),
    ),
    Intent(
        rf"in (?P<file>{_FILE}),? (?:replace|change|swap) (?P<all>all |every )?(?P<old>{_SOME}) "
        rf"(?:with|by|to|for) (?P<new>{_SOME})(?P<every> everywhere| throughout)?",
        lambda g: plans.replace(g["file"], g["old"], g["new"], bool(g["all"] or g["every"])),
    ),
    Intent(
        rf"rename (?P<old>{_SOME}) to (?P<new>{_SOME}) in (?:the )?(?:file )?(?P<file>{_PATH})",
        lambda g: plans.replace(g["file"], g["old"], g["new"], everywhere=True),
    ),
    # a new file
    Intent(
        rf"(?:create|make|write|add) (?:an? |the )?(?:new )?(?:file )?(?:called |named )?(?P<file>{_FILE})"
        r"(?:,? (?:with|containing|saying|that says|holding|and put)(?: the)?(?: content| text| words?)?"
        r":?|:)\s+(?P<content>.+)",
        lambda g: plans.create(g["file"], _content(g["content"])),
    ),
    Intent(
        rf"(?:write|put|save) (?P<content>{_SOME}) (?:to|into|in) (?:the |a )?(?:new )?(?:file )?"
        rf"(?:called |named )?(?P<file>{_FILE})",
        lambda g: plans.create(g["file"], _content(g["content"])),
    ),
    Intent(
        rf"(?:create|make|touch) (?:an? |the )?(?:new |empty )?(?:file )?(?:called |named )?"
        rf"(?P<file>{_FILE})",
        lambda g: plans.create(g["file"], "Made by the tour of crushpy."),
    ),
    Intent(
        r"(?:make|show|try|do)(?: me)? (?:an? |some |the )?(?:small |little )?(?:edit|change)s?\b.*"
        r"|(?:edit|change) (?:a file|something)",
        lambda _: plans.show_an_edit(),
    ),
    # a command, a page
    Intent(
        r"(?:run|start|execute) (?:a|some|any) command",
        lambda _: plans.run_in_shell("pwd"),
    ),
    Intent(
        r"(?:run|execute) (?:the |all |all the )?(?:unit )?tests?",
        lambda _: plans.run_in_shell("python -m pytest -q"),
    ),
    Intent(
        rf"(?:(?:run|execute|start)(?: the)?(?: command| shell command)?:? |[$!] ?)(?P<command>{_SOME})"
        r"(?P<background> in the background)?",
        lambda g: plans.run_in_shell(g["command"], bool(g["background"])),
    ),
    Intent(
        r"(?:fetch|download|get|open|read) (?:the )?(?:page |url )?(?P<url>https?://\S+)",
        lambda g: plans.fetch(g["url"]),
    ),
    # finding
    Intent(
        r"(?:find|list|show|search for|look for|which)(?: me)?(?: all)?(?: the)? "
        r"(?:files(?: are)?(?: named| called| matching| like)?|file (?:named|called)|(?<=find the )file) "
        rf"(?P<pattern>{_QUOTED}|\S*[.*]\S*)",
        lambda g: plans.find_files(g["pattern"]),
    ),
    Intent(
        r"(?:find|list|glob) (?P<pattern>\S*\*\S*)",
        lambda g: plans.find_files(g["pattern"]),
    ),
    Intent(
        rf"(?:(?:search|grep)(?: the (?:project|code|files|folder))?(?: for)?|look for) (?P<words>{_SOME})"
        rf"(?: in (?:the )?(?:folder |file )?(?P<path>{_PATH}))?",
        lambda g: plans.search(g["words"], _folder(g["path"])),
    ),
    Intent(
        rf"find (?P<words>{_SOME})(?: in (?:the )?(?:folder |file )?(?P<path>{_PATH}))?",
        lambda g: plans.search(g["words"], _folder(g["path"])),
    ),
    Intent(
        rf"where (?:is|are) (?P<words>{_SOME})(?: (?:defined|used|set|mentioned|found))?",
        lambda g: plans.search(g["words"]),
    ),
    Intent(
        r"(?:recall|do you remember|what was said about) (?P<words>.+)",
        lambda g: plans.recall_words(g["words"]),
    ),
    # reading
    Intent(
        r"(?:read|open|view|show)(?: me)? (?:a|any|some) file",
        lambda _: plans.read_something(),
    ),
    Intent(
        rf"(?:(?:read|view|cat|open|print|look at)(?: me)?(?: the)?(?: file)? (?P<file>{_PATH})"
        rf"|(?:show|display)(?: me)?(?: the)?(?: file)? (?P<file2>{_FILE}))"
        r"(?:,? (?:from )?lines? (?P<first>\d+)(?:\s*(?:-|to|through)\s*(?P<last>\d+))?.*)?",
        lambda g: plans.read_file(g["file"] or g["file2"], _number(g["first"]), _number(g["last"])),
    ),
)

_LOOK_AROUND = Intent(
    rf"(?:look around|explore|ls|tree|dir|list)(?: in| the)?(?: files| folder| directory| project)?"
    rf"(?: in| of)?(?: (?P<path>{_FILE}))?"
    r"|(?:give me )?(?:an? )?overview.*"
    r"|what(?:'s| is| files are| do you see)(?: there)?(?: in)?"
    r"(?: here| (?:this|the) (?:folder|directory|project|repo(?:sitory)?|workspace))?(?: about)?"
    r"|show me (?:around|what is here|the (?:files|folder|project)|this (?:folder|project))",
    lambda g: plans.look_around(g.get("path") or ""),
)
_TABLE = (_LOOK_AROUND, *INTENTS)
"""Looking around comes first: "look around" is not a search for "around"."""


def understand(request: str) -> Plan | None:
    """The plan for a request, or None where it is none of those the demo knows."""
    words = plain(request)
    if len(words) > _LONGEST:
        return None
    for intent in _TABLE:
        match = re.fullmatch(rf"(?:{intent.pattern})[.!?]*", words, re.IGNORECASE | re.DOTALL)
        if match:
            return intent.plan({name: _unquoted(found or "") for name, found in match.groupdict().items()})
    return None


def plain(request: str) -> str:
    """A request without the words that only make it polite."""
    return _POLITE.sub("", request.strip())


def _unquoted(text: str) -> str:
    text = text.strip() if text.strip() else text
    inside = text[1:-1]
    quotes = len(text) >= 2 and text[0] + text[-1] in ('""', "''", "``", "“”") and text[0] not in inside
    return inside if quotes else text


def _content(text: str) -> str:
    """The words for a file; of a fenced block only what is inside."""
    inside = text.partition("```")[2].partition("\n")[2]
    fenced, closed, _ = inside.partition("```")
    return fenced.removesuffix("\n") if closed else _unquoted(text)


def _folder(path: str) -> str:
    return "" if path.lower() in ("", "here", "files", "project", "folder", "code", "all") else path


def _number(text: str) -> int | None:
    return int(text) if text else None
