"""The public names are the ones that are promised, and `__all__` says so."""

import importlib
import inspect

import pytest

MODULES = [
    "osmosis_ai.rollout",
    "osmosis_ai.rollout.backend",
    "osmosis_ai.rollout.policy",
    "osmosis_ai.rollout.testing",
    "osmosis_ai.rollout.types",
]


@pytest.mark.parametrize("name", MODULES)
def test_all_names_every_public_object(name: str) -> None:
    """`__all__` is sorted and holds what the module offers, no more and no less."""
    module = importlib.import_module(name)
    public = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", "osmosis_ai").startswith(
            ("osmosis_ai", "builtins", "typing")
        )
    }
    assert public == set(module.__all__)
    assert (
        sorted(module.__all__, key=lambda n: (not n.isupper(), n[0].islower(), n)) == module.__all__
    )
