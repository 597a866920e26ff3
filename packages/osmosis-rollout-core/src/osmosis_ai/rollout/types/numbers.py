"""Numbers as rewards and measurements give them: plain, foreign and refused ones."""

import math
from decimal import Decimal
from numbers import Integral, Real
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field


def is_number(value: object) -> bool:
    """Tell whether `value` is one number: built in, Decimal, Fraction or a NumPy-like scalar.

    Text, bytes, complex numbers and arrays (zero-dimensional ones too) are not.
    """
    return isinstance(value, Real | Decimal) or _is_foreign_scalar(value)


def plain_number(value: object) -> int | float:
    """Return a number as the int or float that it stands for.

    A bool becomes 0 or 1. Non-finite floats are returned as they are.

    Raises:
        TypeError: `value` is not a number (see `is_number`).
        ValueError: the number is too large for a float.
    """
    if _is_foreign_scalar(value):
        value = cast(Any, value).item()
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real | Decimal):
        try:
            return float(value)
        except OverflowError:
            msg = "the number is too large for a float"
            raise ValueError(msg) from None
    msg = f"expected a number, got {type(value).__name__}"
    raise TypeError(msg)


def _is_foreign_scalar(value: object) -> bool:
    # NumPy's bool_ is registered with no ABC. A scalar has a dtype and an item(), as an array
    # has, but it cannot be written to.
    kind = type(value)
    return (
        hasattr(kind, "dtype")
        and hasattr(kind, "item")
        and not hasattr(kind, "__setitem__")
        and isinstance(value.item(), int | float)  # type: ignore[attr-defined]
    )


def _finite_float(value: object) -> float:
    if not is_number(value):
        msg = f"expected a number, got {type(value).__name__}"
        raise ValueError(msg)
    try:
        number = float(plain_number(value))
    except OverflowError:
        msg = "the number is too large for a float"
        raise ValueError(msg) from None
    if not math.isfinite(number):
        msg = "the number must be finite"
        raise ValueError(msg)
    return number


FiniteNumber = Annotated[float, BeforeValidator(_finite_float), Field(allow_inf_nan=False)]
"""A finite float, made from any number that `is_number` knows."""
