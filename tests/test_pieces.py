"""Text that came in pieces is the text, and few of them are kept."""

import sys

from crushpy.util.pieces import PIECES, SHORT, Pieces


def test_thousands_of_pieces_are_few_and_say_the_same() -> None:
    pieces = Pieces()
    said = [f"{number} " for number in range(10 * PIECES)]
    for one in said:
        pieces.append(one)
    assert "".join(pieces) == "".join(said)
    assert pieces.characters == len("".join(said))
    assert len(pieces) < PIECES + 20


def test_pieces_that_somebody_joined_go_on() -> None:
    pieces = Pieces()
    for number in range(3 * PIECES):
        pieces.append(f"{number} ")
        if number % 700 == 0:
            pieces[:] = ["".join(pieces)]
    assert "".join(pieces) == "".join(f"{number} " for number in range(3 * PIECES))


def test_wide_letters_widen_only_what_is_near_them() -> None:
    pieces = Pieces()
    for _ in range(5):
        pieces.append("plain words\n" * 10_000 + "\N{ROCKET}")
    size = sum(map(sys.getsizeof, pieces))
    assert size < 1.1 * len("".join(pieces))
    assert pieces.whole() == list(pieces)


def test_a_text_without_blanks_is_cut_all_the_same() -> None:
    pieces = Pieces()
    pieces.append("漢" * 100_000)
    pieces.append("字" * 3)
    assert "".join(pieces) == "漢" * 100_000 + "字" * 3
    assert max(map(len, pieces)) < 2 * SHORT


def test_blanks_are_no_words() -> None:
    pieces = Pieces()
    assert pieces.is_blank
    pieces.append(" \n")
    pieces.append("")
    assert pieces.is_blank
    pieces.append("x")
    assert not pieces.is_blank
    assert pieces.whole() == [" \nx"]
