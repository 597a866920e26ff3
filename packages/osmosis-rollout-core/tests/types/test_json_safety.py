"""Copies that strict JSON can hold, of whatever users and frameworks put into samples."""

import copy
import datetime as dt
import enum
import json
import math
from collections import OrderedDict, UserList
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from osmosis_ai.rollout.types import json_safe

ON_BAD: list[Literal["drop", "replace"]] = ["drop", "replace"]


def encode(value: object) -> bytes:
    """Encode as strictly as any encoder does: no NaN, UTF-8 without surrogates."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


def safe(value: Any) -> Any:
    """Return the copy of a value in which nothing is bad."""
    cleaned, bad = json_safe(value, on_bad="drop")
    assert bad == 0
    encode(cleaned)
    return cleaned


plain_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=30,
)

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.decimals()
    | st.fractions()
    | st.binary()
    | st.datetimes()
    | st.text(st.characters())
    | st.text(st.sampled_from("a\ud83d\ude00\udcb2\x00\ufffe"))
    | st.sampled_from([10**400, -(2**1024), object(), int, np.float32("nan"), np.bool_(True)]),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.frozensets(st.integers())
        | st.dictionaries(st.text(st.characters()) | st.integers() | st.floats() | st.none(), inner)
    ),
    max_leaves=30,
)


class TestProperties:
    @given(value=anything, on_bad=st.sampled_from(ON_BAD))
    def test_the_copy_always_encodes(self, value: object, on_bad: Literal["drop"]) -> None:
        encode(json_safe(value, on_bad=on_bad)[0])

    @given(value=plain_json)
    def test_good_values_stay_as_they_are(self, value: object) -> None:
        cleaned = safe(value)
        assert cleaned == value
        assert repr(cleaned) == repr(value)

    @given(value=anything)
    def test_the_input_is_never_changed(self, value: object) -> None:
        before = repr(value)
        json_safe(value, on_bad="replace")
        assert repr(value) == before

    @given(value=anything)
    def test_cleaning_a_copy_again_changes_nothing(self, value: object) -> None:
        once, _ = json_safe(value, on_bad="replace")
        twice, bad = json_safe(once, on_bad="replace")
        assert (twice, bad) == (once, 0)

    @given(text=st.text(st.characters()))
    def test_only_lone_surrogates_of_a_text_are_replaced(self, text: str) -> None:
        def good(value: str) -> str:
            return "".join(char for char in value if not 0xD800 <= ord(char) <= 0xDFFF)

        cleaned = safe(text)
        if good(text) == text:
            assert cleaned == text
        else:
            # Two surrogates that make a pair are the character that they stand for.
            paired = text.encode("utf-16", "surrogatepass").decode("utf-16", "ignore")
            assert cleaned.replace("\ufffd", "") == paired.replace("\ufffd", "")


class Color(enum.Enum):
    RED = "red"
    LATE = float("nan")


class Level(enum.IntEnum):
    HIGH = 3


class Usage(BaseModel):
    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)

    tokens: int = 1
    when: Any = None


class Shout(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        raise RuntimeError

    def isascii(self) -> bool:
        raise RuntimeError


class Point(NamedTuple):
    x: int
    y: int


GOOD: list[tuple[Any, Any]] = [
    (True, True),
    (np.bool_(True), True),
    (np.int64(3), 3),
    (np.float32(0.5), 0.5),
    (np.float64(0.1), 0.1),
    (Decimal("0.5"), 0.5),
    (Fraction(1, 4), 0.25),
    (2**70, 2**70),
    (Level.HIGH, 3),
    (Color.RED, "red"),
    ((1, (2,)), [1, [2]]),
    (Point(1, 2), [1, 2]),
    (UserList([1]), [1]),
    (OrderedDict(a=1), {"a": 1}),
    (MappingProxyType({"a": (1,)}), {"a": [1]}),
    (Usage(tokens=2), {"tokens": 2, "when": None}),
    (
        {1: "a", 2.5: "b", None: "c", False: "d"},
        {"1": "a", "2.5": "b", "null": "c", "false": "d"},
    ),
    ({np.int64(7): 1, Decimal("0.5"): 2, Color.RED.value: 3}, {"7": 1, "0.5": 2, "red": 3}),
    ({}, {}),
    ([], []),
    ("", ""),
]


class TestGoodValues:
    @pytest.mark.parametrize(("value", "expected"), GOOD)
    def test_foreign_values_become_plain_ones(self, value: object, expected: object) -> None:
        cleaned = safe(value)
        assert cleaned == expected
        assert type(cleaned) is type(expected)

    def test_the_copy_shares_no_container_with_its_source(self) -> None:
        source = {"a": [{"b": 1}]}
        cleaned = safe(source)
        cleaned["a"][0]["b"] = 2
        assert source == {"a": [{"b": 1}]}

    def test_the_same_object_twice_is_no_cycle(self) -> None:
        shared = {"a": 1}
        assert safe([shared, shared]) == [shared, shared]

    def test_a_text_of_a_hostile_class_becomes_plain_text(self) -> None:
        cleaned = safe([Shout("hä"), {Shout("k"): 1}])
        assert cleaned == ["hä", {"k": 1}]
        assert type(cleaned[0]) is str


class TestBadLeaves:
    @pytest.mark.parametrize(
        ("value", "note"),
        [
            (math.nan, None),
            (-math.inf, None),
            (np.float32("nan"), None),
            (10**400, None),
            pytest.param(10**5000, None, id="huge"),
            (Decimal("sNaN"), None),
            (Decimal("1e999"), None),
            (Color.LATE, None),
            (b"\x89PNG", "<4 bytes>"),
            (bytearray(2), "<2 bytes>"),
            (memoryview(bytes(8)).cast("I"), "<8 bytes>"),
            ({1, 2}, "<set>"),
            (1j, "<complex>"),
            (dt.datetime(2025, 1, 1, tzinfo=dt.UTC), "<datetime>"),
            (np.array([1.0]), "<ndarray>"),
            (np.array(1.0), "<ndarray>"),
            (np.datetime64(1, "ns"), "<datetime64>"),
            (np.timedelta64(1, "ns"), "<timedelta64>"),
            (range(10**12), "<range>"),
            (object(), "<object>"),
            (int, "<type>"),
        ],
    )
    def test_b22_only_the_bad_leaf_goes(self, value: object, note: str | None) -> None:
        source = {"good": 1, "bad": value, "list": [1, value, 2], "deep": {"x": (value,)}}
        dropped, bad = json_safe(source, on_bad="drop")
        assert dropped == {"good": 1, "list": [1, 2], "deep": {"x": []}}
        assert bad == 3
        replaced, bad = json_safe(source, on_bad="replace")
        assert replaced == {"good": 1, "bad": note, "list": [1, note, 2], "deep": {"x": [note]}}
        assert bad == 3
        encode([dropped, replaced])

    def test_a_value_that_is_bad_as_a_whole_becomes_null(self) -> None:
        assert json_safe(object(), on_bad="drop") == (None, 1)

    @pytest.mark.parametrize("key", [(1, 2), b"k", math.nan, 10**400, object(), 1j])
    def test_b22_a_key_that_json_cannot_hold_goes_with_its_value(self, key: object) -> None:
        for on_bad in ON_BAD:
            assert json_safe({key: 1, "good": 2}, on_bad=on_bad) == ({"good": 2}, 1)

    def test_b22_cycles_end(self) -> None:
        loop: dict[str, Any] = {"good": 1}
        loop["self"] = loop
        loop["list"] = [loop, 2]
        assert json_safe(loop, on_bad="drop") == ({"good": 1, "list": [2]}, 2)
        assert json_safe(loop, on_bad="replace")[0]["self"] == "<dict>"

    def test_cycles_through_models_end(self) -> None:
        usage = Usage()
        usage.when = [usage, {"again": usage}]
        source: dict[str, Any] = {"usage": usage, "good": 1}
        cleaned, bad = json_safe(source, on_bad="replace")
        assert (cleaned["good"], cleaned["usage"]["tokens"]) == (1, 1)
        assert bad > 0
        assert b"<Usage>" in encode(cleaned)

    def test_what_lies_too_deep_is_cut_there(self) -> None:
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep, "kept"]
        cleaned, bad = json_safe({"deep": deep, "good": 1}, on_bad="replace")
        assert cleaned["good"] == 1
        assert bad >= 1
        assert encode(cleaned).count(b"kept") > 100

    def test_b23_lone_surrogates_are_replaced(self) -> None:
        source = {"content": "a\ud83d", "k\udcb2": ["\ud83d\ude00", "\x00", "\ufffe"]}
        cleaned = safe(source)
        assert cleaned == {"content": "a\ufffd", "k\ufffd": ["\U0001f600", "\x00", "\ufffe"]}
        assert source["content"] == "a\ud83d"


class Unreadable(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        raise RuntimeError

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError

    def __len__(self) -> int:
        return 1


class Torn(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError


class Liar:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError  # for __class__ too


class Scalar:
    dtype = None

    def item(self) -> float:
        raise RuntimeError


class Unhappy(BaseModel):
    model_config = ConfigDict(extra="allow")

    good: int = 1

    def model_dump(self, **_: Any) -> Any:
        raise RuntimeError


class TestHostileObjects:
    @pytest.mark.parametrize("kind", [Unreadable, Torn, Liar, Scalar])
    def test_an_object_that_raises_is_one_bad_leaf(self, kind: type) -> None:
        source = {"good": 1, "bad": kind()}
        assert json_safe(source, on_bad="drop") == ({"good": 1}, 1)
        replaced = json_safe(source, on_bad="replace")
        assert replaced == ({"good": 1, "bad": f"<{kind.__name__}>"}, 1)

    def test_a_model_that_cannot_be_dumped_gives_its_fields(self) -> None:
        source: dict[str, Any] = {"m": Unhappy.model_validate({"extra": object()})}
        assert json_safe(source, on_bad="drop") == ({"m": {"good": 1}}, 1)

    def test_an_object_that_raises_as_a_key_goes(self) -> None:
        assert json_safe({Scalar(): 1, "good": 2}, on_bad="replace") == ({"good": 2}, 1)


def test_deep_copies_of_inputs_stay_equal_for_the_common_shapes() -> None:
    messages = [{"role": "user", "content": "x", "n": [1, 2.5, None, True]}] * 3
    before = copy.deepcopy(messages)
    assert safe(messages) == messages == before
