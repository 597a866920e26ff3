"""The `"module:attr"` references with which a backend may be told what to run."""

import importlib
import inspect
from abc import ABCMeta
from typing import Any


def resolve_class(value: object, base: type[Any], role: str) -> type[Any]:
    """Return the class that `value` is or refers to.

    Args:
        value: A class, or a reference `"module:attr"` (also `"module:Outer.Inner"`) to one.
        base: What it must be a subclass of.
        role: The parameter's name, for errors.

    Raises:
        TypeError: it is no class, no subclass of `base`, or it is abstract.
        ValueError: the reference leads nowhere.
    """
    found = _resolve(value, role)
    source = _describe(value, role)
    if not inspect.isclass(found):
        msg = f"{source}: expected a subclass of {base.__name__}, got {_kind(found)}"
        raise TypeError(msg)
    if not issubclass(found, base):
        msg = f"{source}: {found.__qualname__} is no subclass of {base.__name__}"
        raise TypeError(msg)
    if isinstance(found, ABCMeta) and found.__abstractmethods__:
        missing = ", ".join(sorted(found.__abstractmethods__))
        msg = f"{source}: {found.__qualname__} is abstract: it does not implement {missing}"
        raise TypeError(msg)
    return found


def resolve_instance[T](value: object, kind: type[T], role: str) -> T | None:
    """Return the object that `value` is or refers to; None stays None.

    Args:
        value: An instance of `kind`, or a reference to one.
        kind: What it must be an instance of.
        role: The parameter's name, for errors.

    Raises:
        TypeError: it is no instance of `kind`.
        ValueError: the reference leads nowhere.
    """
    if value is None:
        return None
    found = _resolve(value, role)
    if not isinstance(found, kind):
        msg = f"{_describe(value, role)}: expected an instance of {kind.__name__}, got "
        msg += _kind(found)
        raise TypeError(msg)
    return found


def _resolve(value: object, role: str) -> Any:
    if not isinstance(value, str):
        return value
    source = _describe(value, role)
    module_name, _, path = value.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), *path.split(".")]):
        msg = f'{source}: expected a reference of the form "module:attr"'
        raise ValueError(msg)
    try:
        found = importlib.import_module(module_name)
    except Exception as error:  # the module is user code
        msg = f"{source}: importing {module_name} failed: {type(error).__name__}: {error}"
        raise ValueError(msg) from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            msg = f"{source}: {getattr(found, '__name__', found)} has no attribute {name}"
            raise ValueError(msg) from error
    return found


def _describe(value: object, role: str) -> str:
    return f"{role}={value!r}" if isinstance(value, str) else role


def _kind(found: object) -> str:
    return f"the class {found.__qualname__}" if inspect.isclass(found) else type(found).__name__
