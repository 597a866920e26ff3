"""The sample: one finished conversation and what was earned with it."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from osmosis_ai.rollout.types.copying import deep_copy
from osmosis_ai.rollout.types.json_safety import json_safe
from osmosis_ai.rollout.types.numbers import FiniteNumber

_log = logging.getLogger(__name__)


class RolloutSample(BaseModel):
    """What graders read, trainers receive and archives keep of one rollout.

    Attributes:
        messages: The conversation in the framework's own form.
        trajectory_messages: The conversation in chat-completions form, for the archive. By default
            a deep copy of `messages`; None means that no trajectory is to be saved.
        label: The reference answer.
        reward: The finite number that the grader set, or None.
        remove_sample: Whether the trainer is to leave this sample out.
        metrics: Measurements by name.
        extra_fields: Whatever else belongs to the sample.

    Raises:
        pydantic.ValidationError: on construction and on assignment, when a value does not fit.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        validate_assignment=True, hide_input_in_errors=True
    )

    messages: Sequence[Mapping[str, Any]] = Field(default_factory=list[Mapping[str, Any]])
    trajectory_messages: Sequence[Mapping[str, Any]] | None = None
    label: str | None = None
    reward: FiniteNumber | None = None
    remove_sample: bool = False
    metrics: dict[str, Any] = Field(default_factory=dict)
    extra_fields: dict[str, Any] = Field(default_factory=dict)

    def model_post_init(self, context: Any, /) -> None:
        """Copy `messages` for the archive unless the caller said what to keep there."""
        if "trajectory_messages" in self.model_fields_set:
            return
        try:
            copied = deep_copy(self.messages)
        except BaseException as error:  # foreign code: a panic below Python is no Exception
            _log.warning(
                "The messages cannot be copied (%s): no trajectory will be saved for this sample.",
                type(error).__name__,
            )
            copied = None
        # Not an assignment by the user: it must neither validate again nor count as a set field.
        vars(self)["trajectory_messages"] = copied

    def json_safe_copy(self) -> "RolloutSample":
        """Return a copy whose `metrics` and `extra_fields` can be encoded as strict JSON.

        Foreign numbers become int or float, tuples lists and numeric keys text. What JSON cannot
        hold, non-finite numbers included, is dropped; one warning says how much.
        """
        metrics, bad_metrics = json_safe(self.metrics, on_bad="drop")
        extra_fields, bad_fields = json_safe(self.extra_fields, on_bad="drop")
        if bad_metrics or bad_fields:
            _log.warning(
                "Left out what JSON cannot hold: %d value(s) of metrics, %d of extra_fields.",
                bad_metrics,
                bad_fields,
            )
        return self.model_copy(update={"metrics": metrics, "extra_fields": extra_fields})
