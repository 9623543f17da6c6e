"""Writes, edits and reads while their folder is swapped for a link: `python -m benchmarks.path_races`.

`--calls 1500` says how many. Each call is judged and run as in a conversation. What lands or is read outside
is counted: it has to be 0.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Any

from crushpy.permissions.decide import decide
from crushpy.permissions.rules import RuleSet
from crushpy.tools.base import AnyTool, CallContext, Workspace
from crushpy.tools.errors import ToolError
from crushpy.tools.registry import all_tools, check_args, tool_table
from crushpy.tools.shell.jobs import Jobs
from tests.support.folder_swapper import swapping

SECRET = "from outside"


def wanted(number: int) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("write", {"file_path": f"d/{number}.txt", "content": "written\n"}),
        ("write", {"file_path": f"d/new{number}/a.txt", "content": "written\n"}),
        ("view", {"file_path": "d/known.txt"}),
        ("edit", {"file_path": "d/known.txt", "old_string": "inside", "new_string": "inside."}),
        ("ls", {"path": "d"}),
        ("grep", {"pattern": "o", "path": "d/known.txt"}),
        ("grep", {"pattern": "outside", "path": "d"}),
        ("grep", {"pattern": "outside", "path": "."}),
        ("glob", {"pattern": "**/only*", "path": "."}),
    ]


async def call(
    tools: dict[str, AnyTool], context: CallContext, rules: RuleSet, name: str, args: dict[str, Any]
) -> str:
    tool = tools[name]
    checked = check_args(tool, args)
    lent = CallContext(context.workspace, context.agent)
    try:
        if decide(tool.accesses(checked, lent), rules, context.workspace.cwd).verdict != "allow":
            return "not allowed"
        return (await tool.run(checked, lent)).text
    except (ToolError, OSError) as error:
        return str(error)


async def race(calls: int) -> dict[str, list[int]]:
    tools = {tool.name: tool for tool in all_tools()}
    tool_table()
    rules = RuleSet.from_strings(allow=("write(./d/**)",))
    counts: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as made:
        place = Path(made).resolve()
        inside, outside = place / "work" / "d", place / "outside"
        for folder, text in ((inside, "inside"), (outside, SECRET)):
            folder.mkdir(parents=True)
            (folder / "known.txt").write_text(f"{text}\n")
        (outside / "only-outside.txt").touch()
        before = sorted(path.name for path in outside.iterdir())
        context = CallContext(Workspace(place / "work", place / "outputs", Jobs()))
        with swapping(inside, outside):
            for number in range(calls // len(wanted(0))):
                for name, args in wanted(number):
                    said = await call(tools, context, rules, name, args)
                    what = f"{name} {'.' if args.get('path') == '.' else 'd'}"
                    ran, out = counts.setdefault(what, [0, 0])
                    after = sorted(path.name for path in outside.iterdir())
                    bad = SECRET in said or "only-outside" in said or after != before
                    counts[what] = [ran + (said != "not allowed"), out + bad]
                    before = after
        assert (outside / "known.txt").read_text() == f"{SECRET}\n"
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_500)
    counts = asyncio.run(race(parser.parse_args().calls))
    print(f"{'call':<10} {'allowed':>8} {'outside':>8}")
    for what, (ran, out) in counts.items():
        print(f"{what:<10} {ran:>8} {out:>8}")


if __name__ == "__main__":
    main()
