"""Which rows are run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osmosis_ai.rollout.eval import EvalError
from osmosis_ai.rollout.eval._selection import RowSelection

ranges = st.tuples(st.integers(0, 60), st.integers(0, 9)).map(lambda pair: (pair[0], sum(pair)))


@given(st.lists(ranges, min_size=1, max_size=6))
def test_a_selection_holds_what_was_written(parts: list[tuple[int, int]]) -> None:
    """In any order, with or without overlap; and it is written back in its shortest form."""
    text = ", ".join(f"{first}-{last}" if first != last else f"{first}" for first, last in parts)
    selection = RowSelection.parse(text)
    chosen = {row for first, last in parts for row in range(first, last + 1)}
    assert {row for row in range(80) if row in selection} == chosen
    assert selection.last == max(chosen)
    assert RowSelection.parse(str(selection)) == selection
    assert str(selection).count(",") == sum(row + 1 not in chosen for row in chosen) - 1


@pytest.mark.parametrize("text", ["", "x", "3-", "-3", "3-1", "1,,2", "1.5", "²", "1--2"])
def test_what_selects_no_rows(text: str) -> None:
    """The part that is wrong is told, with an example."""
    with pytest.raises(EvalError, match="such as 3,7,10-20"):
        RowSelection.parse(text)
