"""Differences of texts, as they are shown."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.behavioral_tests.diff import Piece, text_diff


@given(st.text(max_size=60), st.text(max_size=60))
def test_pieces_make_both_texts_again(before: str, after: str) -> None:
    pieces = text_diff(before, after)
    assert "".join(text for kind, text in pieces if kind != "added") == before
    assert "".join(text for kind, text in pieces if kind != "removed") == after
    kinds = [kind for kind, _ in pieces]
    assert all(text for _, text in pieces)
    assert all(a != b for a, b in pairwise(kinds))


@given(st.text())
def test_equal_texts_have_one_piece(text: str) -> None:
    assert text_diff(text, text) == ([("same", text)] if text else [])


@pytest.mark.parametrize(
    ("before", "after", "pieces"),
    [
        ("my good film", "my bad film",
         [("same", "my "), ("removed", "good"), ("added", "bad"), ("same", " film")]),
        ("It's bad.", "It is bad.", [("same", "It"), ("removed", "'s"), ("added", " is"), ("same", " bad.")]),
        ("it doesn't fit", "it does not fit",
         [("same", "it "), ("removed", "doesn't"), ("added", "does not"), ("same", " fit")]),
        ("good", "not good!", [("added", "not "), ("same", "good"), ("added", "!")]),
        ("old", "", [("removed", "old")]),
        ("Male", "Female", [("removed", "Male"), ("added", "Female")]),
        ("What", "WHAT", [("removed", "What"), ("added", "WHAT")]),
    ],
)  # fmt: skip
def test_words_are_compared_before_letters(before: str, after: str, pieces: list[Piece]) -> None:
    assert text_diff(before, after) == pieces


def test_long_texts_are_compared_too() -> None:
    before = "the cat sat on the mat and " * 40_000  # 1 MB: difflib alone would need hours
    after = before[:500_000].replace("cat", "dog") + before[500_000:]
    pieces = text_diff(before, after)
    assert "".join(text for kind, text in pieces if kind != "added") == before
    assert "".join(text for kind, text in pieces if kind != "removed") == after
