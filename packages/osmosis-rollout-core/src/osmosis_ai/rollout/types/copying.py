"""Deep copies of conversations, which are JSON nearly throughout and may be long."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

# These never change, so a copy shares them.
_ATOMS: Final = {str, int, float, bool, type(None)}
# Copying this many values takes milliseconds.
_MANY: Final = 20_000
_PER_MESSAGE: Final = 20


def deep_copy[T](value: T) -> T:
    """Do what `copy.deepcopy` does, several times as fast where values are plain JSON.

    Raises:
        Exception: whatever the `__deepcopy__` of a foreign object raises.
    """
    return cast("T", _copied(value, {}))


def is_long(messages: Sequence[Any]) -> bool:
    """Tell whether looking at every value of the messages would hold up an event loop."""
    size = 0
    for message in messages:
        size += _PER_MESSAGE
        if type(message) is dict:
            values = cast("dict[Any, Any]", message).values()
            size += sum(len(cast("list[Any]", value)) for value in values if type(value) is list)
        if size > _MANY:
            return True
    return False


def _copied(value: object, memo: dict[int, Any]) -> Any:
    if type(value) in _ATOMS:
        return value
    if (known := memo.get(id(value))) is not None:
        return known
    return _COPIERS.get(type(value), copy.deepcopy)(value, memo)


def _copied_list(value: list[Any], memo: dict[int, Any]) -> list[Any]:
    # A list may hold itself, so its copy is known before its items are copied.
    memo[id(value)] = copied = [*value]
    if not set(map(type, value)) <= _ATOMS:
        copied[:] = [_copied(item, memo) for item in value]
    return copied


def _copied_dict(value: dict[Any, Any], memo: dict[int, Any]) -> dict[Any, Any]:
    copied: dict[Any, Any] = {}
    memo[id(value)] = copied
    for key, item in value.items():
        name = key if type(key) is str else _copied(key, memo)
        copied[name] = item if type(item) in _ATOMS else _copied(item, memo)
    return copied


_COPIERS: Final[Mapping[type, Callable[[Any, dict[int, Any]], Any]]] = {
    list: _copied_list,
    dict: _copied_dict,
}
