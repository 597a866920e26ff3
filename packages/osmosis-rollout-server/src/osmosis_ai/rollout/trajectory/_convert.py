"""A rollout's sample as an ATIF document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from osmosis_ai.rollout.trajectory._agent import describe_agent, split_tools
from osmosis_ai.rollout.trajectory._continuity import token_continuity
from osmosis_ai.rollout.trajectory._json import JsonObject, clean, present
from osmosis_ai.rollout.trajectory._media import MediaFiles
from osmosis_ai.rollout.trajectory._models import Trajectory
from osmosis_ai.rollout.trajectory._numbers import with_lists
from osmosis_ai.rollout.trajectory._report import TrajectoryReport, final_metrics, lay_over
from osmosis_ai.rollout.trajectory._steps import Transcript, split_message
from osmosis_ai.rollout.trajectory._subagents import embed_subagents
from osmosis_ai.rollout.trajectory._tool_calls import take_calls
from osmosis_ai.rollout.types import (
    RolloutErrorCategory,
    RolloutErrorOrigin,
    RolloutSample,
    RolloutStatus,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFacts:
    """What a document says of a rollout besides its sample; see `convert_sample_to_trajectory`."""

    rollout_id: str
    request_label: str | None = None
    request_metadata: Mapping[str, Any] | None = None
    request_extra_fields: Mapping[str, Any] | None = None
    initial_messages: Sequence[Mapping[str, Any]] | None = None
    report: TrajectoryReport | None = None
    status: RolloutStatus | None = None
    err_category: RolloutErrorCategory | None = None
    origin: RolloutErrorOrigin | None = None
    retryable: bool | None = None
    grading_skipped: str | None = None


def convert_sample_to_trajectory(
    sample: RolloutSample,
    *,
    rollout_id: str,
    request_label: str | None = None,
    request_metadata: Mapping[str, Any] | None = None,
    request_extra_fields: Mapping[str, Any] | None = None,
    initial_messages: Sequence[Mapping[str, Any]] | None = None,
    report: TrajectoryReport | None = None,
    status: RolloutStatus | None = None,
    err_category: RolloutErrorCategory | None = None,
    origin: RolloutErrorOrigin | None = None,
    retryable: bool | None = None,
    grading_skipped: str | None = None,
    files: MediaFiles | None = None,
) -> Trajectory | None:
    """Convert a sample's `trajectory_messages` into an ATIF document.

    ATIF is the Agent Trajectory Interchange Format:
    https://www.harborframework.com/docs/agents/trajectory-format. Nothing is invented: what the
    messages and the report do not tell stays absent. The sample is not changed.

    Args:
        sample: The sample.
        rollout_id: The rollout's id, which becomes the document's.
        request_label: The request's label, used where the sample has none.
        request_metadata: The request's metadata, kept in `extra.osmosis`.
        request_extra_fields: The request's extra fields, kept in `extra.osmosis`.
        initial_messages: The request's messages: turns that came in with them get no metrics.
        report: What the trainer told of its model calls.
        status: How the rollout ended, kept in `extra.osmosis`.
        err_category: What kind of failure it was, likewise.
        origin: Where the failure came from, likewise.
        retryable: Whether a repeat may well succeed, likewise.
        grading_skipped: Why there was no grading, likewise.
        files: Where the bytes of images and sounds in the messages go, by the path (relative to the
            document) that the document refers to. Without it a note takes their place.

    Returns:
        The document; None when the sample has no messages, or asks for none to be saved.
    """
    facts = RolloutFacts(
        rollout_id=rollout_id,
        request_label=request_label,
        request_metadata=request_metadata,
        request_extra_fields=request_extra_fields,
        initial_messages=initial_messages,
        report=report,
        status=status,
        err_category=err_category,
        origin=origin,
        retryable=retryable,
        grading_skipped=grading_skipped,
    )
    document = build_document(sample, facts, files)
    return Trajectory.model_validate(_with_lists(document)) if document else None


def build_document(
    sample: RolloutSample, facts: RolloutFacts, files: MediaFiles | None, *, trust: bool = False
) -> JsonObject | None:
    """Return the document as plain JSON, not checked yet; None when there are no messages.

    Token ids and log probabilities in it are `Numbers`, proved unless there is `trust`.

    Building it out of models would cost several times as much, and a second copy to write it.
    """
    if not sample.trajectory_messages:
        return None
    tools, messages = split_tools(sample.trajectory_messages)
    transcript = Transcript(files, trust=trust)
    in_prompt = count_prompt_messages(messages, facts.initial_messages or ())
    for index, message in enumerate(messages):
        transcript.add(message, from_prompt=index < in_prompt)
    report = facts.report or TrajectoryReport()
    agent_steps = transcript.agent_steps
    unmatched = lay_over(report, agent_steps)
    totals = final_metrics(report, unmatched, agent_steps, rollout_id=facts.rollout_id)
    rollout_id = clean(facts.rollout_id)
    subagents = embed_subagents(
        transcript, session_id=rollout_id, owner_id=rollout_id, files=files, trust=trust
    )
    model_name = report.only_sample.model_name or report.model_name or None
    osmosis = {**_osmosis(sample, facts), **token_continuity(agent_steps), **unmatched}
    return present(
        schema_version=transcript.schema_version,
        session_id=rollout_id,
        trajectory_id=rollout_id,
        agent=describe_agent(tools, model_name=model_name),
        steps=transcript.steps,
        final_metrics={**totals, "total_steps": len(transcript.steps)},
        extra={"osmosis": osmosis},
        subagent_trajectories=subagents or None,
    )


def _with_lists(document: JsonObject) -> JsonObject:
    steps = [
        {**step, "metrics": with_lists(step["metrics"])} if "metrics" in step else step
        for step in document["steps"]
    ]
    subagents = [_with_lists(subagent) for subagent in document.get("subagent_trajectories", ())]
    return {**document, "steps": steps, "subagent_trajectories": subagents or None}


def count_prompt_messages(
    messages: Sequence[Mapping[str, Any]], prompt: Sequence[Mapping[str, Any]]
) -> int:
    """Return how many of the leading `messages` came in with the request's `prompt`.

    Frameworks spell messages anew, and keep instructions elsewhere or add their own, so messages
    are compared by what they say, and system messages not at all.
    """
    if not any(message.get("role") == "assistant" for message in prompt):
        return 0  # only assistant turns are treated differently
    wanted = [_essence(message) for message in prompt if not _is_system(message)]
    matched = 0
    for index, message in enumerate(messages):
        if matched == len(wanted):
            return index
        if not _is_system(message):
            if _essence(message) != wanted[matched]:
                return index
            matched += 1
    return len(messages)


def _is_system(message: Mapping[str, Any]) -> bool:
    return message.get("role") in ("system", "developer")


def _essence(message: object) -> tuple[Any, ...]:
    fields, content = split_message(message, None)
    calls = [(call["function_name"], call["arguments"]) for call in take_calls(fields).calls]
    return fields.get("role"), content.message, calls


def _osmosis(sample: RolloutSample, facts: RolloutFacts) -> JsonObject:
    label = facts.request_label if sample.label is None else sample.label
    said: JsonObject = clean(
        present(
            rollout_id=facts.rollout_id,
            label=label,
            reward=sample.reward,
            sample_metrics=sample.metrics or None,
            sample_extra_fields=sample.extra_fields or None,
            request_metadata=facts.request_metadata,
            request_extra_fields=facts.request_extra_fields,
            status=facts.status,
            err_category=facts.err_category,
            origin=facts.origin,
            retryable=facts.retryable,
            grading_skipped=facts.grading_skipped,
        )
    )
    return said
