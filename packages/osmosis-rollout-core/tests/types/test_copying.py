"""Deep copies that are those of `copy.deepcopy`, sooner."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osmosis_ai.rollout.types.copying import deep_copy, is_long

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.text()), inner, max_size=3)
        | st.sets(st.integers(), max_size=3)
    ),
    max_leaves=12,
)


def containers(value: Any) -> set[int]:
    """Return the ids of the lists, dicts and sets in a value."""
    own = {id(value)} if isinstance(value, list | dict | set) else set()
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(inner, str | int | float | None) and hasattr(inner, "__iter__"):
        return own.union(*map(containers, inner))
    return own


@given(values)
@settings(deadline=None)
def test_a_copy_is_equal_and_shares_no_container(value: Any) -> None:
    copied = deep_copy(value)
    assert copied == copy.deepcopy(value)
    assert not containers(copied) & containers(value)


def test_shared_and_cyclic_values_stay_so() -> None:
    shared = [1, [2]]
    cycle: list[Any] = [shared, shared, (shared,)]
    cycle.append(cycle)
    copied = deep_copy(cycle)
    assert copied[0] is copied[1] is copied[2][0]
    assert copied[3] is copied
    assert copied[0] is not shared
    assert copied[0] == [1, [2]]


def test_foreign_objects_copy_themselves() -> None:
    class Once:
        def __init__(self) -> None:
            self.copies = 0

        def __deepcopy__(self, memo: object) -> "Once":
            self.copies += 1
            return Once()

    once = Once()
    messages: list[dict[str, Any]] = [{"a": once}, {"b": [once]}]
    first, second = deep_copy(messages)
    assert once.copies == 1
    assert first["a"] is second["b"][0] is not once


def test_errors_come_through() -> None:
    class Uncopyable:
        def __deepcopy__(self, memo: object) -> "Uncopyable":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        deep_copy([{"a": Uncopyable()}])


@pytest.mark.parametrize(
    ("messages", "long"),
    [
        ([], False),
        ([{"content": "x" * 10**6}], False),
        ([{"content": "x"}] * 2000, True),
        ([{"ids": [1] * 30_000}], True),
        ([object()], False),
    ],
)
def test_what_is_long(messages: list[Any], long: bool) -> None:
    assert is_long(messages) is long
