"""`benchmarks.recount` counts sessions of other agents by their formats, apart from the readers."""

import json
from pathlib import Path

import support.foreign_files as foreign

from benchmarks.recount import compare


def test_recount_agrees_with_imports_and_sees_a_difference(tmp_path: Path) -> None:
    foreign.write_lines(tmp_path / "claude" / "one.jsonl", foreign.claude_lines())
    foreign.write_lines(tmp_path / "codex" / "one.jsonl", foreign.codex_lines())
    foreign.write_lines(tmp_path / "pi" / "one.jsonl", foreign.pi_lines())
    export = foreign.write_opencode_export(tmp_path / "home")
    (tmp_path / "opencode").mkdir()
    value = json.loads(export.read_text())
    (tmp_path / "opencode" / "one.json").write_text(json.dumps(value))
    found = dict.fromkeys(("claude", "codex", "pi", "opencode"), False)
    for row, agrees in compare(tmp_path):
        found[row[2:].partition("/")[0]] = agrees
        assert agrees, row
    assert all(found.values())
