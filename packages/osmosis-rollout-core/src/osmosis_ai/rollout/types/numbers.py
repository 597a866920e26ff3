"""Numbers as rewards and measurements give them: plain, foreign and refused ones."""

import math
from decimal import Decimal
from numbers import Integral, Real
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field

# NumPy's kinds of dtype for points in time and spans: they hold integers and are no numbers.
_TIME_KINDS = {"M", "m"}


def is_number(value: object) -> bool:
    """Tell whether `value` is one number: built in, Decimal, Fraction or a NumPy-like scalar.

    Text, bytes, complex numbers, times and arrays (zero-dimensional ones too) are not.
    """
    return isinstance(python_scalar(value), Real | Decimal) and not _is_time(value)


def python_scalar(value: object) -> object:
    """Return the bool, int or float in a NumPy-like scalar, and any other value as it is."""
    kind = type(value)
    # NumPy's bool_ is registered with no ABC. A scalar has a dtype and an item(), as an array
    # has, but it cannot be written to.
    if hasattr(kind, "dtype") and hasattr(kind, "item") and not hasattr(kind, "__setitem__"):
        item: object = cast(Any, value).item()
        return item if isinstance(item, int | float) and not _is_time(value) else value
    return value


def plain_number(value: object) -> int | float:
    """Return a number as the int or float that it stands for.

    A bool becomes 0 or 1. Non-finite floats are returned as they are.

    Raises:
        TypeError: `value` is not a number (see `is_number`).
        ValueError: the number is too large for a float, or a signalling NaN.
    """
    if type(value) is float:
        return value  # as nearly all are; the way through the abstract classes is long
    if not is_number(value):
        msg = f"expected a number, got {type(value).__name__}"
        raise TypeError(msg)
    scalar = cast("Real | Decimal", python_scalar(value))
    try:
        as_float = float(scalar)
    except OverflowError:
        msg = "the number is too large for a float"
        raise ValueError(msg) from None
    return int(scalar) if isinstance(scalar, Integral) else as_float


def _is_time(value: object) -> bool:
    return getattr(getattr(value, "dtype", None), "kind", None) in _TIME_KINDS


def _finite_float(value: object) -> float:
    try:
        number = float(plain_number(value))
    except TypeError as error:
        raise ValueError(str(error)) from None
    if not math.isfinite(number):
        msg = "the number must be finite"
        raise ValueError(msg)
    return number


FiniteNumber = Annotated[float, BeforeValidator(_finite_float), Field(allow_inf_nan=False)]
"""A finite float, made from any number that `is_number` knows."""
