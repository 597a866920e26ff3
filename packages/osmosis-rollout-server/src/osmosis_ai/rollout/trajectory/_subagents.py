"""Conversations of agents that were called as tools, embedded in the document of their caller.

An integration that knows them puts them on the message with the tool's result, under `subagents`: a
list of objects with the `messages` of one conversation each and, where it is known, the
`agent_name`. A call that had not come to an end has such a message without `content`. Agents that
took turns in one conversation stay in it; their messages have an `agent_name` of their own, which
goes to the steps' `extra`.

Format: https://www.harborframework.com/docs/agents/trajectory-format
"""

from collections.abc import Mapping
from typing import Any, Final

from osmosis_ai.rollout.trajectory._agent import AGENT_NAME, describe_agent, split_tools
from osmosis_ai.rollout.trajectory._continuity import token_continuity
from osmosis_ai.rollout.trajectory._json import JsonObject, clean, present
from osmosis_ai.rollout.trajectory._media import MediaFiles
from osmosis_ai.rollout.trajectory._report import sums_of
from osmosis_ai.rollout.trajectory._steps import Transcript
from osmosis_ai.rollout.types.json_safety import clean_text

# Readers recurse into embedded documents.
_MAX_LEVEL: Final = 4


def embed_subagents(
    transcript: Transcript,
    *,
    session_id: str,
    owner_id: str,
    files: MediaFiles | None,
    trust: bool,
    level: int = 1,
) -> list[JsonObject]:
    """Convert the conversations behind a transcript's results, and refer to them there.

    Args:
        transcript: The caller's steps; their results get the references.
        session_id: The rollout's id.
        owner_id: The trajectory id of the caller's document.
        files: Where the bytes of images and sounds go.
        trust: Whether lists of tokens are proved later; see `Numbers`.
        level: How many callers there are above.

    Returns:
        The documents, each with an id of its own below the owner's.
    """
    embedded: list[JsonObject] = []
    for result, runs in transcript.delegations:
        if level > _MAX_LEVEL:
            result["extra"] = {**result.get("extra", {}), "subagents": clean(runs)}
            continue
        for run in runs:
            trajectory_id = f"{owner_id}/{len(embedded) + 1}"
            own, document = _document(run, session_id, trajectory_id, files, trust, level)
            transcript.has_audio = transcript.has_audio or own.has_audio
            embedded.append(document)
            reference = {"trajectory_id": trajectory_id, "session_id": session_id}
            result.setdefault("subagent_trajectory_ref", []).append(reference)
    return embedded


def _document(
    run: Mapping[str, Any],
    session_id: str,
    trajectory_id: str,
    files: MediaFiles | None,
    trust: bool,
    level: int,
) -> tuple[Transcript, JsonObject]:
    tools, messages = split_tools(run["messages"])
    transcript = Transcript(files, trust=trust)
    for message in messages:
        transcript.add(message, from_prompt=False)
    below = embed_subagents(
        transcript,
        session_id=session_id,
        owner_id=trajectory_id,
        files=files,
        trust=trust,
        level=level + 1,
    )
    name = run.get("agent_name")
    name = clean_text(name) if isinstance(name, str) and name else AGENT_NAME
    continuity = token_continuity(transcript.agent_steps)
    document = present(
        schema_version=transcript.schema_version,
        session_id=session_id,
        trajectory_id=trajectory_id,
        agent=describe_agent(tools, name=name),
        steps=transcript.steps,
        final_metrics={**sums_of(transcript.agent_steps), "total_steps": len(transcript.steps)},
        extra={"osmosis": continuity} if continuity else None,
        subagent_trajectories=below or None,
    )
    return transcript, document
