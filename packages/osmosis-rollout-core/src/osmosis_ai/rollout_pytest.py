"""The pytest plugin: `ScriptedPolicy` and `ReplayPolicy` as fixtures.

pytest loads it in every project that has core installed. It lies beside `osmosis_ai.rollout`, not
in it, so that a test run that uses neither fixture imports nothing of that package.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from osmosis_ai.rollout.testing import ReplayPolicy, ScriptedPolicy


@pytest.fixture
def scripted_policy() -> Iterator["ScriptedPolicy"]:
    """A running `ScriptedPolicy` with an empty script: `add` replies, or set `respond`.

    A request for which the script had no reply is an error at the test's end.
    """
    from osmosis_ai.rollout.testing import ScriptedPolicy

    with ScriptedPolicy() as policy:
        yield policy


@pytest.fixture
def replay_policy() -> Iterator[Callable[[str | Path], "ReplayPolicy"]]:
    """A function that starts a `ReplayPolicy` on a file; it runs until the test's end."""
    from osmosis_ai.rollout.testing import ReplayPolicy

    with ExitStack() as running:
        yield lambda path: running.enter_context(ReplayPolicy(path))
