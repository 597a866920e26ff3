"""A word of warning where another distribution owns our import paths too."""

import sys
import warnings


def warn_of_all_in_one(package: str) -> None:
    """Warn once if the distribution `osmosis-ai` is installed beside these packages.

    It alone makes `package`'s parent a regular package with an `__init__.py`; none of ours does.
    """
    parent = sys.modules[package.rpartition(".")[0]]
    if getattr(parent, "__file__", None) is None:
        return
    warnings.warn(
        f"the distribution osmosis-ai is installed beside osmosis-rollout-core, and both own "
        f"{package}: files of one have replaced files of the other. Uninstall osmosis-ai, then "
        "reinstall the osmosis packages that you use.",
        stacklevel=3,
    )
