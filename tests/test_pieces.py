"""Text that came in pieces is the text, and few of them are kept."""

from crushpy.pieces import PIECES, Pieces


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
