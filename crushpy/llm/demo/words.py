"""What the demo says: who it is, how to connect a real model, and how it tells what came of a call."""

import re

from crushpy.core.messages import ToolResult, counted
from crushpy.llm.demo.steps import Ending

ABILITIES = """\
- look around (or: what is in this folder?)
- read FILE, read FILE lines 10-40
- search for WORDS, search for WORDS in FOLDER, find files named *.py
- run `COMMAND`, run `COMMAND` in the background
- replace "OLD" with "NEW" in FILE (add: everywhere)
- create FILE with TEXT
- fetch https://...
- work through a list: look around; search for TODO; create notes.md with hello
- fill the window (watch the gauge, and what happens when it is full)
- start a new session"""

CONNECT = """\
To connect a real model, do one of these and start crushpy again:
- store a key: crushpy connect anthropic (or openai, gemini, openrouter, ...)
- or put it in the environment: ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, OPENROUTER_API_KEY, ...
- use a server of your own: OPENAI_BASE_URL=http://127.0.0.1:11434/v1 crushpy -m openai/MODEL
- choose one for good: crushpy config set model anthropic/claude-sonnet-5-5

`crushpy models` lists what is within reach, local servers too."""

WHO = """\
I am demo/tour, the stand-in that is built into crushpy. I am not a language model: no network, no key, \
no thinking. I understand a few requests and carry them out with crushpy's real tools, permissions and \
sessions, so that you can try everything before you connect a model."""

GUIDE = f"{WHO}\n\nAsk me to:\n{ABILITIES}\n\n{CONNECT}"

ASIDE = (
    "(This was demo/tour, built into crushpy and not a language model. "
    "Say `help` for what it can do and how to connect a real one.)"
)

_ALLOW = re.compile(r"--allow .+$", re.MULTILINE)
_LINES = 15
_WIDTH = 160


def excerpt(text: str, lines: int = _LINES) -> str:
    """The beginning of a result as a block, saying how much there was."""
    rows = text.rstrip().splitlines() or ["(nothing)"]
    shown = [row if len(row) <= _WIDTH else row[:_WIDTH] + " ..." for row in rows[:lines]]
    rest = len(rows) - len(shown)
    more = f"\n({counted(rest, 'more line')})" if rest > 0 else ""
    return "```\n" + "\n".join(shown).replace("```", "'''") + f"\n```{more}"


def told(result: ToolResult, success: str) -> Ending:
    """How a call ended: `success` and what came back, or what went wrong and what would help."""
    return failed(result) if result.is_error else Ending(f"{success}\n{excerpt(result.text)}")


def failed(result: ToolResult) -> Ending:
    text = result.text.strip()
    first = text.splitlines()[0] if text else "no reason was given"
    flags = _ALLOW.findall(text)
    if flags:
        return Ending(
            f"I was not allowed to use {result.name}. {first.partition('. ')[0]}.\n"
            f"To let me, run this again with {' '.join(flags)}; to be asked instead, use the app.",
            done=False,
        )
    if text.lower().startswith(("the user denied", "denied", "permission")):
        return Ending(f"{result.name} was refused, so I left it: {first}", done=False)
    return Ending(f"{result.name} did not work:\n{excerpt(text)}", done=False)
