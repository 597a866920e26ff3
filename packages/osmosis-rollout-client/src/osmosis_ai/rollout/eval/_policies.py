"""The policy of a run: an endpoint that is there, or recorded solutions that this process plays."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._options import EvalOptions
from osmosis_ai.rollout.eval._outcomes import Attempt
from osmosis_ai.rollout.testing import RecordingError, ReplayPolicy


@contextmanager
def policy_attempts(options: EvalOptions) -> Generator[list[Attempt]]:
    """Yield the attempts that every row gets; a replayed policy is served meanwhile.

    Raises:
        EvalError: the recordings cannot be used.
    """
    if options.replay is None:
        url = options.chat_url or ""
        yield [Attempt(number, None, url) for number in range(1, (options.attempts or 1) + 1)]
        return
    with _replaying(options.replay) as policy:
        yield _recorded_attempts(policy, options.attempts)


@contextmanager
def _replaying(path: Path) -> Generator[ReplayPolicy]:
    policy = ReplayPolicy(path)
    try:
        policy.__enter__()
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror or error}"
        raise EvalError(msg) from None
    except RecordingError as error:
        raise EvalError(str(error)) from None
    try:
        yield policy
    finally:
        policy.__exit__(None, None, None)


def _recorded_attempts(policy: ReplayPolicy, wanted: int | None) -> list[Attempt]:
    models = policy.models
    if wanted is not None and wanted > len(models):
        msg = (
            f"{wanted} attempts need as many recorded models, and the file holds {len(models)}: "
            f"{', '.join(models)}"
        )
        raise EvalError(msg)
    chosen = enumerate(models[:wanted], 1)
    return [Attempt(number, model, policy.url_for(model)) for number, model in chosen]
