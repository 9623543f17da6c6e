"""The schedule of a list of tasks: in order, alone where they must, and no dependant of a failure."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crushpy.engine.agents.task_spec import TaskSchedule, TaskSpec, problem_with_needs


def planned(name: str, needs: tuple[str, ...] = (), exclusive: bool = True) -> TaskSpec:
    return TaskSpec("work", name, needs, read_only=not exclusive)


def is_over(schedule: TaskSchedule) -> bool:
    return not schedule.in_state("running") and not schedule.startable()


@st.composite
def lists(draw: st.DrawFn) -> list[TaskSpec]:
    """Tasks without circles, whose needs may point forwards and backwards."""
    order = draw(st.permutations(range(draw(st.integers(1, 9)))))
    found: list[TaskSpec] = []
    for place, number in enumerate(order):
        needs = draw(st.sets(st.sampled_from(order[:place]))) if place else set[int]()
        found.append(planned(f"t{number}", tuple(f"t{need}" for need in sorted(needs)), draw(st.booleans())))
    return sorted(found, key=lambda task: task.name)


@given(lists(), st.integers(1, 5), st.data())
def test_every_task_comes_to_rest_and_each_rule_holds_on_the_way(
    tasks: list[TaskSpec], parallel: int, data: Any
) -> None:
    assert problem_with_needs(tasks) == ""
    by_name = {task.name: task for task in tasks}
    schedule = TaskSchedule(tasks, parallel)
    began: list[str] = []
    while not is_over(schedule):
        for name in schedule.startable():
            schedule.start(name)
            began.append(name)
            assert all(schedule.states[need] == "done" for need in by_name[name].needs or ())
        running = schedule.in_state("running")
        assert 0 < len(running) <= parallel
        assert len(running) == 1 or not any(by_name[name].exclusive for name in running)
        state = data.draw(st.sampled_from(["done", "done", "done", "failed", "limit"]))
        schedule.end(data.draw(st.sampled_from(running)), state)
    assert len(set(began)) == len(began)
    for task in tasks:
        bad = any(schedule.states[need] != "done" for need in task.needs or ())
        assert (schedule.states[task.name] == "skipped") == bad
        assert (task.name in began) != bad


@given(lists(), st.integers(1, 5), st.data())
def test_finished_tasks_are_not_started_again(tasks: list[TaskSpec], parallel: int, data: Any) -> None:
    done = data.draw(st.sets(st.sampled_from([task.name for task in tasks])))
    schedule = TaskSchedule(tasks, parallel, done)
    while not is_over(schedule):
        for name in schedule.startable():
            assert name not in done
            schedule.start(name)
        schedule.end(schedule.in_state("running")[0], "done")
    assert set(schedule.states.values()) == {"done"}


def reading(name: str, *needs: str) -> TaskSpec:
    return planned(name, needs, exclusive=False)


def test_exclusive_task_waits_and_is_not_overtaken() -> None:
    schedule = TaskSchedule([reading("a"), reading("b"), planned("c"), reading("d")], 4)
    assert schedule.startable() == ["a", "b"]
    schedule.start("a")
    schedule.start("b")
    schedule.end("a", "done")
    assert schedule.startable() == []
    schedule.end("b", "done")
    assert schedule.startable() == ["c"]
    schedule.start("c")
    assert schedule.startable() == []
    schedule.end("c", "done")
    assert schedule.startable() == ["d"]


def test_task_waiting_for_results_lets_others_pass() -> None:
    schedule = TaskSchedule([reading("a"), planned("b", ("d",)), reading("c"), reading("d")], 2)
    assert schedule.startable() == ["a", "c"]


def test_a_failure_takes_its_dependants_with_it_and_nobody_else() -> None:
    schedule = TaskSchedule([reading("a"), reading("b", "c"), reading("c", "a"), reading("d")], 1)
    schedule.start("a")
    assert schedule.end("a", "failed") == ["b", "c"]
    assert schedule.startable() == ["d"]


def test_schedule_starts_no_task_after_a_stop() -> None:
    schedule = TaskSchedule([reading("a"), reading("b")], 1)
    schedule.start("a")
    schedule.stop()
    schedule.end("a", "interrupted")
    assert is_over(schedule) and schedule.in_state("waiting") == ["b"]


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        pytest.param([reading("a"), reading("A")], "task 2 has the name 'A', which task 1 has", id="same"),
        pytest.param([reading("a", "b")], "task 1 (a) needs 'b', but no task has that name", id="unknown"),
        pytest.param([reading("a"), reading("b", "b")], "task 2 (b) needs itself", id="itself"),
        pytest.param(
            [reading("x"), reading("a", "c"), reading("b", "a"), reading("c", "b")],
            "task 2 (a) depends on itself: a needs c needs b needs a",
            id="circle",
        ),
    ],
)
def test_schedule_names_tasks_that_can_never_run(tasks: list[TaskSpec], said: str) -> None:
    assert said in problem_with_needs(tasks)


def test_a_long_chain_is_no_problem() -> None:
    chain = [reading(f"t{n}", *([f"t{n - 1}"] if n else [])) for n in range(3_000)]
    assert problem_with_needs(chain[::-1]) == ""
