"""What workflows and graders may hand back: one check for every backend."""

import logging

from osmosis_ai.rollout.types.copying import deep_copy
from osmosis_ai.rollout.types.execution import ExecutionRequest
from osmosis_ai.rollout.types.messages import Messages
from osmosis_ai.rollout.types.output import AgentWorkflowOutput
from osmosis_ai.rollout.types.sample import RolloutSample

_log = logging.getLogger(__name__)


def check_output(returned: object) -> AgentWorkflowOutput | None:
    """Return what `run()` returned as a valid output; None stands for the registered source.

    An instance is validated again: what was written into it after construction counts.

    Raises:
        TypeError: it is none of the three kinds that `run()` may return.
        pydantic.ValidationError: the output, or the list of messages, is not valid.
    """
    if returned is None:
        return None
    if isinstance(returned, list):
        return AgentWorkflowOutput.model_validate({"messages": returned})
    if not isinstance(returned, AgentWorkflowOutput):
        msg = (
            f"run() returned {type(returned).__name__}: return an AgentWorkflowOutput, a list of "
            "messages, or None to have the registered sample source asked"
        )
        raise TypeError(msg)
    return AgentWorkflowOutput.model_validate(returned)


def sample_from_output(output: AgentWorkflowOutput, *, label: str | None) -> RolloutSample | None:
    """Return the sample of an explicit output, or None when the output has no messages.

    The sample's messages are copies: the workflow may keep its own and change them.
    """
    if output.messages is None:
        return None
    return RolloutSample(
        messages=_copied(output.messages), label=label, metrics=dict(output.metrics)
    )


def unrewarded(sample: object) -> RolloutSample:
    """Return a source's sample as it is, but for the reward: only a grader sets one.

    Raises:
        TypeError: it is no `RolloutSample`.
    """
    if not isinstance(sample, RolloutSample):
        msg = f"the sample source returned {type(sample).__name__}, expected a RolloutSample"
        raise TypeError(msg)
    return sample if sample.reward is None else sample.model_copy(update={"reward": None})


def why_not_graded(request: ExecutionRequest) -> str | None:
    """Return why a sample of this request is not to be graded; None when it is."""
    if not request.grade:
        return "the request asked for no grading"
    if request.label is None and request.metadata is None:
        return "the request has neither a label nor metadata"
    return None


def check_graded(sample: object, returned: object) -> RolloutSample:
    """Return the sample of a finished grading if the grading counts as a success.

    Args:
        sample: `ctx.sample` after `grade()` returned.
        returned: What `grade()` returned; it never counts.

    Raises:
        TypeError: `ctx.sample` was replaced by something that is no `RolloutSample`.
        ValueError: there is no sample, it has no reward and is not to be removed, or its reward is
            no finite number.
    """
    if sample is None:
        msg = "there is no sample to grade: the workflow produced none"
        raise ValueError(msg)
    if not isinstance(sample, RolloutSample):
        msg = f"ctx.sample was set to {type(sample).__name__}, expected a RolloutSample"
        raise TypeError(msg)
    if sample.reward is None and not sample.remove_sample:
        msg = "the grader set no reward: call ctx.set_reward()"
        if returned is not None:
            msg += f"; the {type(returned).__name__} that grade() returned is ignored"
        raise ValueError(msg)
    graded = sample.model_copy()
    # An assignment validates: a reward may have been written past the model's checks.
    graded.reward = sample.reward
    return graded


def _copied(messages: Messages) -> Messages:
    try:
        return deep_copy(messages)
    except BaseException as error:  # foreign code: a panic below Python is no Exception
        _log.warning(
            "The workflow's messages cannot be copied deeply (%s); only the messages themselves "
            "are private to the sample, not the values in them.",
            type(error).__name__,
        )
        return [dict(message) for message in messages]
