"""ATIF documents as chat messages again.

Format: https://www.harborframework.com/docs/agents/trajectory-format
"""

import base64
import json
from pathlib import Path
from typing import Any, Final

from osmosis_ai.rollout.artifacts import read_file
from osmosis_ai.rollout.trajectory._json import JsonObject, present
from osmosis_ai.rollout.trajectory._media import suffix_of
from osmosis_ai.rollout.trajectory._models import (
    ContentPart,
    ImageSource,
    Metrics,
    ObservationResult,
    Step,
    ToolCall,
    Trajectory,
)
from osmosis_ai.rollout.types import MessageDict

_ROLES: Final = {"system": "system", "user": "user", "agent": "assistant"}
_RESULT_ROLES: Final = ("tool", "function")
# What chat messages say besides their content.
_CHAT_KEYS: Final = ("name", "refusal", "annotations")


def convert_trajectory_to_messages(
    trajectory: Trajectory, *, folder: Path | None = None
) -> list[MessageDict]:
    """Convert an ATIF document, this package's or anyone's, into chat-completions messages.

    Roles, texts, tool calls, their results and reasoning come back as they were. Turns of the
    policy carry what is known of their making under the keys of `PolicyReply.annotated`, which
    `PolicyClient` does not send. Results follow the turn that they belong to; one without a call
    has no `tool_call_id`. Embedded subagents are documents of their own: convert them one by one.

    Args:
        trajectory: The document.
        folder: The directory of the document's file. With it, images and sounds that lie below it
            become part of the messages; without, images are referred to as the document does and
            sounds leave a note.

    Raises:
        OSError: a file that the document refers to cannot be read, or is a link.
        ValueError: a path in the document leads out of `folder`.
    """
    return [message for step in trajectory.steps for message in _step_messages(step, folder)]


def _step_messages(step: Step, folder: Path | None) -> list[MessageDict]:
    calls = step.tool_calls or []
    ids = {call.tool_call_id: _original_id(call) for call in calls}
    results = step.observation.results if step.observation else []
    answers = [_result_message(result, ids, folder) for result in results]
    original_role = (step.extra or {}).get("original_role")
    if original_role in _RESULT_ROLES and not step.message:
        return answers  # a step that was made to hold a result that came before every turn
    role = _ROLES[step.source]
    if isinstance(original_role, str) and step.source != "agent":
        role = original_role
    message: MessageDict = {
        "role": role,
        "content": _content(step.message, folder) or (None if calls else ""),
        **_chat_members(step.extra),
    }
    if step.source == "agent":
        message |= _turn_members(step)
    return [message, *answers]


def _turn_members(step: Step) -> JsonObject:
    members = present(
        reasoning_content=step.reasoning_content,
        tool_calls=[_chat_call(call) for call in step.tool_calls or ()] or None,
        model=step.model_name,
        created_at=step.timestamp,
    )
    return members | (_telemetry(step.metrics) if step.metrics else {})


def _telemetry(metrics: Metrics) -> JsonObject:
    cached = metrics.cached_tokens
    usage = present(
        prompt_tokens=metrics.prompt_tokens,
        completion_tokens=metrics.completion_tokens,
        prompt_tokens_details=None if cached is None else {"cached_tokens": cached},
        cost=metrics.cost_usd,
    )
    return present(
        usage=usage or None,
        prompt_token_ids=metrics.prompt_token_ids,
        token_ids=metrics.completion_token_ids,
        logprobs=metrics.logprobs,
    )


def _chat_call(call: ToolCall) -> JsonObject:
    raw = call.arguments.get("_raw")
    is_text = len(call.arguments) == 1 and isinstance(raw, str)
    arguments = raw if is_text else json.dumps(call.arguments, ensure_ascii=False)
    function = {"name": call.function_name, "arguments": arguments}
    return {"id": _original_id(call), "type": "function", "function": function}


def _original_id(call: ToolCall) -> str:
    original = (call.extra or {}).get("original_id")
    return original if isinstance(original, str) else call.tool_call_id


def _result_message(
    result: ObservationResult, ids: dict[str, str], folder: Path | None
) -> MessageDict:
    extra = result.extra or {}
    role = "function" if extra.get("original_role") == "function" else "tool"
    linked = ids.get(result.source_call_id) if result.source_call_id is not None else None
    call_id = extra.get("tool_call_id") if linked is None else linked
    return present(
        role=role,
        tool_call_id=call_id if role == "tool" else None,
        content=_content(result.content or "", folder),
        **_chat_members(extra),
    )


def _chat_members(extra: dict[str, Any] | None) -> JsonObject:
    return {key: extra[key] for key in _CHAT_KEYS if key in extra} if extra else {}


def _content(content: str | list[ContentPart], folder: Path | None) -> str | list[JsonObject]:
    if isinstance(content, str):
        return content
    return [_chat_part(part, folder) for part in content]


def _chat_part(part: ContentPart, folder: Path | None) -> JsonObject:
    source = part.source
    if source is None:
        return {"type": "text", "text": part.text}
    data = None
    if folder is not None and "://" not in source.path:
        data = base64.b64encode(read_file(folder, source.path)).decode()
    if isinstance(source, ImageSource):
        url = source.path if data is None else f"data:{source.media_type};base64,{data}"
        return {"type": "image_url", "image_url": {"url": url}}
    if data is None:
        return {"type": "text", "text": f"<{source.media_type}: {source.path}>"}
    sound = {"data": data, "format": suffix_of(source.media_type)}
    return {"type": "input_audio", "input_audio": sound}
