"""How much is under way to a terminal: told by its answers, or by writes that it holds up."""

from crushpy.tui.terminal.pace import KERNEL, LEAST, MUCH, OFTEN, PATIENCE, SLOW, UNBOUNDED, Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_terminal_in_good_health_has_room_for_everything() -> None:
    clock = Clock()
    pace = Pace(clock)
    asked = 0
    for _ in range(50):
        if pace.writes(700):
            asked += 1
            clock.now += 0.002
            assert not pace.answered(), "nothing is left to ask about"
        assert pace.room >= UNBOUNDED - MUCH
        assert not pace.is_behind
    assert asked < 25, "not behind each frame"
    clock.now += OFTEN
    assert pace.writes(1), "and now and then at least"


def test_a_late_answer_to_a_few_bytes_says_nothing_of_the_line() -> None:
    clock = Clock()
    pace = Pace(clock)
    for size in (8, LEAST - 1, round(2 * SLOW)):
        clock.now += OFTEN
        assert pace.writes(size)
        clock.now += 1.0
        pace.answered()
        assert pace.room == UNBOUNDED
        assert not pace.is_slow


def test_what_counts_is_when_the_answer_came_not_when_there_was_time_to_read_it() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.writes(6_000)
    came = clock.now + 0.004
    clock.now += 2.0
    pace.answered(came)
    assert pace.room == UNBOUNDED


def test_nothing_more_is_drawn_until_a_slow_terminal_has_drawn_what_it_got() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.writes(100)
    clock.now += 0.005
    pace.answered()
    pace.writes(6_000)
    clock.now += 1.0
    pace.answered()
    assert pace.room == LEAST
    pace.writes(500)
    assert pace.room == 0
    assert pace.is_behind
    clock.now += 0.08
    pace.answered()
    assert pace.room == LEAST


def test_a_distant_terminal_on_a_fast_line_is_not_taken_for_a_slow_one() -> None:
    clock = Clock()
    pace = Pace(clock)
    for _ in range(40):
        pace.writes(max(100, pace.room))
        clock.now += 0.2
        pace.answered()
    assert pace.room == UNBOUNDED


def test_a_terminal_that_stops_answering_is_drawn_on_again() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.writes(100)
    clock.now += 0.01
    pace.answered()
    pace.writes(UNBOUNDED + 1)
    pace.written = 100 + UNBOUNDED + 1
    assert pace.is_behind
    clock.now += PATIENCE + 0.1
    assert pace.room == UNBOUNDED


def test_one_that_never_answers_is_known_by_what_it_holds_up() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.writes(KERNEL)
    assert not pace.writes(0), "asked once"
    clock.now += 1.0
    assert pace.room == 0, "the kernel has not taken it yet"
    clock.now += 2.0
    pace.written = KERNEL
    pace.wrote(3.0)
    assert pace.room == 0, "it still has some of it"
    clock.now += 2.0
    assert 0 < pace.room <= LEAST
    pace.writes(LEAST)
    pace.written += LEAST
    assert pace.room == 0
    assert 0 < pace.look_again < 0.2
