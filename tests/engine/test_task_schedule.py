"""Which tasks of a list can start: in order, alone where they must, and no dependant of a failure."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crushpy.engine.agents.task_spec import TaskSpec, find_blocked, find_startable, problem_with_needs


def planned(name: str, needs: tuple[str, ...] = (), exclusive: bool = True) -> TaskSpec:
    return TaskSpec("work", name, needs, read_only=not exclusive)


def all_in(state: str, states: dict[str, str]) -> list[str]:
    return [name for name, found in states.items() if found == state]


def waiting(tasks: list[TaskSpec], **states: str) -> dict[str, str]:
    return {task.name: "waiting" for task in tasks} | states


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
    states = waiting(tasks)
    began: list[str] = []
    while (startable := find_startable(tasks, states, parallel)) or all_in("running", states):
        for name in startable:
            states[name] = "running"
            began.append(name)
            assert all(states[need] == "done" for need in by_name[name].needs or ())
        running = all_in("running", states)
        assert 0 < len(running) <= parallel
        assert len(running) == 1 or not any(by_name[name].exclusive for name in running)
        state = data.draw(st.sampled_from(["done", "done", "done", "failed", "limit"]))
        states[data.draw(st.sampled_from(running))] = state
        states |= dict.fromkeys(find_blocked(tasks, states), "skipped")
    assert len(set(began)) == len(began)
    for task in tasks:
        bad = any(states[need] != "done" for need in task.needs or ())
        assert (states[task.name] == "skipped") == bad
        assert (task.name in began) != bad


@given(lists(), st.integers(1, 5), st.data())
def test_finished_tasks_are_not_started_again(tasks: list[TaskSpec], parallel: int, data: Any) -> None:
    done = data.draw(st.sets(st.sampled_from([task.name for task in tasks])))
    states = waiting(tasks) | dict.fromkeys(done, "done")
    while (startable := find_startable(tasks, states, parallel)) or all_in("running", states):
        assert not done & set(startable)
        states |= dict.fromkeys(startable, "running")
        states[all_in("running", states)[0]] = "done"
    assert set(states.values()) == {"done"}


def reading(name: str, *needs: str) -> TaskSpec:
    return planned(name, needs, exclusive=False)


@pytest.mark.parametrize(
    ("states", "startable"),
    [
        ({}, ["a", "b"]),
        ({"a": "done", "b": "running"}, []),
        ({"a": "done", "b": "done"}, ["c"]),
        ({"a": "done", "b": "done", "c": "running"}, []),
        ({"a": "done", "b": "done", "c": "done"}, ["d"]),
    ],
)
def test_exclusive_task_waits_and_is_not_overtaken(states: dict[str, str], startable: list[str]) -> None:
    tasks = [reading("a"), reading("b"), planned("c"), reading("d")]
    assert find_startable(tasks, waiting(tasks, **states), 4) == startable


def test_task_waiting_for_results_lets_others_pass() -> None:
    tasks = [reading("a"), planned("b", ("d",)), reading("c"), reading("d")]
    assert find_startable(tasks, waiting(tasks), 2) == ["a", "c"]


def test_a_failure_takes_its_dependants_with_it_and_nobody_else() -> None:
    tasks = [reading("a"), reading("b", "c", "e"), reading("c", "a"), reading("d"), reading("e")]
    states = waiting(tasks, a="failed")
    assert find_blocked(tasks, states) == {"b": ["c"], "c": ["a"]}
    assert find_startable(tasks, states, 1) == ["d"]


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
    assert len(find_blocked(chain, waiting(chain, t0="failed"))) == 2_999
