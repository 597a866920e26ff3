"""Strict JSON (RFC 8259): no NaN, no number beyond floats, no key twice, no half characters."""

import json
import math
import re
from collections import Counter
from typing import Any, Never


class JsonError(ValueError):
    """Text that is not strict JSON.

    Attributes:
        problem: What is wrong.
        column: Where in the text, counted from 1.
    """

    def __init__(self, problem: str, column: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.column = column


class _Refused(ValueError):
    """Something that `json` reads and we do not; `token` is where to look for it."""

    def __init__(self, problem: str, token: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.token = token


def parse_json(text: str) -> Any:
    """Return the value that `text` holds.

    Raises:
        JsonError: the text is not strict JSON.
    """
    try:
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
            object_pairs_hook=_distinct,
        )
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        msg = f"not JSON ({error.msg})"
        raise JsonError(msg, error.pos + 1) from None
    except _Refused as refused:
        raise JsonError(refused.problem, _place(refused.token, text)) from None
    except UnicodeEncodeError:
        msg = "half of a surrogate pair, which no text can hold"
        raise JsonError(msg, _place("\\u", text)) from None
    except RecursionError:
        msg = "nested too deeply"
        raise JsonError(msg, 1) from None
    except ValueError:
        msg = "a whole number with too many digits"
        raise JsonError(msg, 1) from None
    return value


def compact_json(value: object) -> bytes:
    """Return the bytes of a value that came out of JSON.

    Raises:
        ValueError: it holds a number that JSON has no form for.
    """
    shape: Any = {"separators": (",", ":"), "allow_nan": False}
    try:
        return json.dumps(value, ensure_ascii=False, **shape).encode()
    except UnicodeEncodeError:
        # Half characters stand in JSON as escapes only.
        return json.dumps(value, **shape).encode()


def kind(value: object) -> str:
    """Return what JSON calls a value, with its article."""
    kinds: dict[type, str] = {
        dict: "an object",
        list: "a list",
        str: "text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return kinds.get(type(value), "null")


def _refuse_constant(name: str) -> Never:
    msg = f"{name} is not JSON"
    raise _Refused(msg, name)


def _finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        msg = "a number too large for a float"
        raise _Refused(msg, text)
    return number


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        [(name, _)] = Counter(key for key, _ in pairs).most_common(1)
        msg = f"the key {name!r} comes twice in one object"
        raise _Refused(msg, json.dumps(name, ensure_ascii=False))
    return record


def _place(token: str, text: str) -> int:
    # A name may stand in text as well: skip whole strings unless a string is what we look for.
    strings = "" if token.startswith(('"', "\\")) else r'"(?:[^"\\]|\\.)*"|'
    for found in re.finditer(f"{strings}({re.escape(token)})", text):
        if found[1]:
            return found.start(1) + 1
    return 1
