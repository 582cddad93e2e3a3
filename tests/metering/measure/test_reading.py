"""Reading scored against the known text: decoding, edit distance, and the floor."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.datasets.reading import (
    ReadingAccuracy,
    ReadingFloor,
    edit_distance,
    greedy_labels,
    reading_accuracy,
    spell,
)

ALPHABET = ("", "a", "b", " ")
STRICT = ReadingFloor(Decimal("0.9"), Decimal("0.05"))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ([1, 1, 2], "ab"),
        ([1, 0, 1, 1, 0], "aa"),
        ([0, 0, 0], ""),
        ([0, 2, 2, 0, 2, 3, 3, 1], "bb a"),
        ([1], "a"),
    ],
)
def test_repeats_merge_and_blanks_part_them(path: list[int], text: str) -> None:
    scores = np.full((2, len(path), len(ALPHABET)), 0.1, dtype=np.float32)
    for place, label in enumerate(path):
        scores[1, place, label] = 0.9
        scores[0, place, 0] = 0.9
    assert [spell(labels, ALPHABET) for labels in greedy_labels(scores)] == ["", text]


@pytest.mark.parametrize(
    "scores",
    [
        np.zeros((3, 4), dtype=np.float32),
        np.zeros((3, 4, 1), dtype=np.float32),
        np.full((1, 2, 3), np.nan, dtype=np.float32),
    ],
)
def test_scores_that_mean_nothing_are_refused(scores: np.ndarray) -> None:
    with pytest.raises(ValueError, match="scores: got"):
        greedy_labels(scores)


@pytest.mark.parametrize("label", [0, 4, -1])
def test_a_label_outside_the_alphabet_is_refused(label: int) -> None:
    with pytest.raises(ValueError, match="wanted 1 to 3"):
        spell([1, label], ALPHABET)


def brute_force(truth: str, read: str) -> int:
    """The definition, by recursion."""
    if not truth or not read:
        return len(truth) + len(read)
    return min(
        brute_force(truth[1:], read) + 1,
        brute_force(truth, read[1:]) + 1,
        brute_force(truth[1:], read[1:]) + (truth[0] != read[0]),
    )


@given(st.text("ab ", max_size=5), st.text("ab ", max_size=5))
def test_edit_distance_is_its_definition(truth: str, read: str) -> None:
    assert edit_distance(truth, read) == brute_force(truth, read)


def test_rates_are_counts_over_the_whole_set() -> None:
    """A mean of rates by line would give the short line as much weight as the long one."""
    found = reading_accuracy(["ab", "aaaaaaaa"], ["xx", "aaaaaaaa"], STRICT)
    assert found.exact_rate == Decimal("0.5")
    assert found.character_error_rate == Decimal("0.2")
    assert not found.passed


def test_spaces_count_unless_the_floor_says_otherwise() -> None:
    truth, read = ["Net 5 kg", "a b"], [" Net5 kg", "ab "]
    strict = reading_accuracy(truth, read, STRICT)
    assert (strict.exact_lines, strict.character_errors, strict.characters) == (0, 4, 11)
    lenient = ReadingFloor(Decimal("0.9"), Decimal("0.05"), ignore_spaces=True)
    found = reading_accuracy(truth, read, lenient)
    assert (found.exact_lines, found.character_errors, found.characters) == (2, 0, 8)
    assert found.passed
    assert not reading_accuracy(truth, ["Net 5 kG", "ab"], lenient).passed


@pytest.mark.parametrize(
    ("exact", "errors", "passed"),
    [("0.5", "0.1", True), ("0.51", "0.1", False), ("0.5", "0.09", False), ("0", "1", True)],
)
def test_both_floors_must_hold(exact: str, errors: str, passed: bool) -> None:
    floor = ReadingFloor(Decimal(exact), Decimal(errors))
    assert reading_accuracy(["abcde", "fghij"], ["abcde", "fghiX"], floor).passed is passed


def test_the_record_carries_counts_and_round_trips() -> None:
    found = reading_accuracy(["abc"], ["abd"], STRICT)
    assert ReadingAccuracy.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_line_left_out_is_refused() -> None:
    with pytest.raises(ValueError, match="wanted the 2"):
        reading_accuracy(["a", "b"], ["a"], STRICT)
    with pytest.raises(ValueError, match="wanted the 0"):
        reading_accuracy([], [], STRICT)


@pytest.mark.parametrize("value", [Decimal("1.1"), Decimal("-0.1"), 0.5])
def test_a_floor_outside_its_range_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="least_exact"):
        ReadingFloor(value, Decimal("0.1"))  # type: ignore[arg-type]
