"""The one truncation: what it promises for any text and any limit."""

from hypothesis import example, given
from hypothesis import strategies as st

from crushpy.tools.truncate import HeadTail, marker, truncate, truncate_line

texts = st.text(alphabet=st.sampled_from("ab\n\r\u00e9\U0001f600"), max_size=400)
limits = st.integers(min_value=0, max_value=300)


def halves(shown: str, cut: int) -> tuple[str, str]:
    head, tail = shown.split(marker(cut) + "\n")
    return head, tail


@given(texts, limits)
def test_a_text_within_the_limit_comes_through_untouched(text: str, limit: int) -> None:
    result = truncate(text, limit)
    assert (result.truncated_chars == 0) == (len(text) <= limit)
    if len(text) <= limit:
        assert result.text == text


@given(texts, limits)
@example("a" * 400, 0)
@example("a\n" * 200, 7)
@example("\n" * 400, 1)
def test_a_cut_text_is_its_own_head_and_tail_and_the_count_is_exact(text: str, limit: int) -> None:
    result = truncate(text, limit)
    if not result.truncated_chars:
        return
    head, tail = halves(result.text, result.truncated_chars)
    if not text.startswith(head):  # a newline was put before the marker
        assert head.endswith("\n")
        head = head[:-1]
    assert text.startswith(head)
    assert text.endswith(tail)
    missing = len(text) - len(head) - len(tail)
    # A newline that ends the shown head may be the text's own or the marker's: the count tells which.
    assert result.truncated_chars in (missing, missing + 1)
    kept = text[: len(text) - result.truncated_chars - len(tail)]
    line_end = "" if not kept or kept.endswith("\n") else "\n"
    assert f"{kept}{line_end}{marker(result.truncated_chars)}\n{tail}" == result.text


@given(texts, limits)
def test_a_cut_text_is_never_longer_than_limit_and_marker_line(text: str, limit: int) -> None:
    result = truncate(text, limit)
    room = len(marker(result.truncated_chars)) + 2 if result.truncated_chars else 0
    assert len(result.text) <= limit + room


@given(st.lists(st.integers(min_value=0, max_value=99), min_size=30, max_size=200))
def test_lines_are_kept_whole_where_they_are_short(numbers: list[int]) -> None:
    lines = [f"line {number}" for number in numbers]
    result = truncate("\n".join(lines), 150)
    head, tail = halves(result.text, result.truncated_chars)
    assert head.splitlines() == lines[: len(head.splitlines())]
    assert tail.splitlines() == lines[-len(tail.splitlines()) :]


@given(texts, limits)
def test_a_shortened_text_keeps_at_least_half_of_what_it_may(text: str, limit: int) -> None:
    result = truncate(text, limit)
    assert len(text) - result.truncated_chars >= min(len(text), limit // 2)


def test_long_line_is_truncated_in_the_middle() -> None:
    result = truncate("x" * 50_000)
    assert result.truncated_chars == 20_000
    assert result.text == "x" * 15_000 + "\n[... 20,000 characters truncated ...]\n" + "x" * 15_000


def test_a_long_line_keeps_its_beginning_and_says_how_much_is_missing() -> None:
    assert truncate_line("abcdef", 6) == "abcdef"
    assert truncate_line("abcdef", 4) == "abcd [... 2 characters truncated ...]"


@given(st.lists(texts, max_size=8), limits)
def test_a_text_that_comes_in_pieces_is_shortened_like_one_that_comes_whole(
    pieces: list[str], limit: int
) -> None:
    growing = HeadTail(limit)
    for piece in pieces:
        growing.add(piece)
    assert growing.text() == truncate("".join(pieces), limit)


def test_a_text_that_grows_for_ever_is_held_in_bounded_memory() -> None:
    growing = HeadTail(1_000)
    for _ in range(10_000):
        growing.add("x" * 1_000)
    assert growing.total == 10_000_000
    assert len(growing.text().text) < 1_100
    held = sum(len(value) for value in _strings(growing))
    assert held < 10_000


def _strings(holder: HeadTail) -> list[str]:
    """Every string that it holds on to, wherever."""
    found: list[str] = []
    for value in vars(holder).values():
        found += [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return found
