"""The public names of the part are the ones that it says."""

import inspect

from osmosis_ai.rollout import trajectory


def test_all_names_every_public_object() -> None:
    """`__all__` is sorted and holds what the module offers, no more and no less."""
    public = {
        name
        for name, value in vars(trajectory).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(trajectory.__all__)
    assert sorted(trajectory.__all__, key=lambda n: (n[0].islower(), n)) == trajectory.__all__
