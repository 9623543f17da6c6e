"""The table of a list of tasks: it fits the terminal, however many there are and whatever they say."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from crushpy.cli.printers import table_lines
from crushpy.core.events import ListedTaskChanged
from crushpy.engine.agents.task_spec import TaskState

pytestmark = pytest.mark.slow


def a_task(number: int, state: str, line: str = "", name: str = "") -> ListedTaskChanged:
    return ListedTaskChanged(name or f"task-{number}", state, 2, 1_234, 0.5, line, number, 99)


@given(
    st.lists(st.tuples(st.sampled_from(get_args(TaskState)), st.text(max_size=80)), min_size=1, max_size=40),
    st.integers(20, 120),
    st.integers(3, 50),
)
def test_task_table_fits_the_width(tasks: list[tuple[str, str]], width: int, height: int) -> None:
    lines = table_lines(
        [a_task(number, state, line) for number, (state, line) in enumerate(tasks, 1)], width, height
    )
    assert 0 < len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)
    assert not any("\x1b" in line or "\n" in line for line in lines)


def test_task_table_shows_running_and_failed_tasks_first_when_not_all_fit() -> None:
    tasks = [a_task(number, "done") for number in range(1, 50)]
    tasks += [a_task(50, "running", "looks at 時間.py"), a_task(51, "failed"), a_task(52, "waiting")]
    lines = table_lines(tasks, 100, 6)
    shown = [line.split()[:2] for line in lines[1:-1]]
    assert shown == [["✓", "task-1"], ["▸", "task-50"], ["✗", "task-51"], ["task-52", "waiting"]]
    assert "52 tasks: 1 running, 1 failed, 1 waiting, 49 done" in lines[-1] and "48 not shown" in lines[-1]
    assert lines[2].endswith("looks at 時間.py")
