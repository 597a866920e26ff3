"""Chat messages as the steps of an ATIF document.

Format: https://www.harborframework.com/docs/agents/trajectory-format
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from osmosis_ai.rollout.trajectory._content import Content, read_content
from osmosis_ai.rollout.trajectory._json import JsonObject, as_object, clean, clean_members, present
from osmosis_ai.rollout.trajectory._media import MediaFiles
from osmosis_ai.rollout.trajectory._numbers import find_numbers, with_lists
from osmosis_ai.rollout.trajectory._timestamps import take_timestamp
from osmosis_ai.rollout.trajectory._tool_calls import TurnCalls, id_text, take_calls
from osmosis_ai.rollout.trajectory._usage import TOKEN_KEYS, take_metrics

_SOURCES: Final = {"system": "system", "developer": "system"}
_RESULT_ROLES: Final = ("tool", "function")
_MODEL_KEYS: Final = frozenset({"model", "model_name", "extra"})


class Transcript:
    """The steps of a conversation, built message by message.

    Steps are plain JSON objects: they are checked once, as a whole, when the document is complete.

    Attributes:
        steps: The steps so far.
        agent_steps: Those of them that the policy made in this rollout.
        has_audio: Whether any of them holds a sound.
        delegations: Results that are the work of other agents, each with these agents'
            conversations; see `embed_subagents`.
    """

    def __init__(self, files: MediaFiles | None = None, *, trust: bool = False) -> None:
        """Start with no steps.

        Args:
            files: What takes the bytes of images and sounds.
            trust: Whether lists of tokens are proved later; see `Numbers`.
        """
        self.steps: list[JsonObject] = []
        self.agent_steps: list[JsonObject] = []
        self.has_audio = False
        self.delegations: list[tuple[JsonObject, list[Mapping[str, Any]]]] = []
        self._files = files
        self._trust = trust
        # The nearest assistant turn so far: later tool results belong to it.
        self._turn: JsonObject = {}
        self._calls: TurnCalls | None = None

    @property
    def schema_version(self) -> str:
        """The version of the format that a document with these steps needs."""
        return "ATIF-v1.8" if self.has_audio else "ATIF-v1.7"

    def add(self, message: object, *, from_prompt: bool) -> None:
        """Add one chat message; a turn that came in with the prompt gets no metrics."""
        fields, content = split_message(message, self._files, trust=self._trust)
        self.has_audio = self.has_audio or content.has_audio
        role = fields.get("role")
        if role in _RESULT_ROLES:
            self._add_result(fields, content, cast("Mapping[Any, Any]", message))
        elif role == "assistant":
            self._add_turn(fields, content, from_prompt=from_prompt)
        else:
            self.steps.append({"step_id": self._next_id, **_other_step(fields, content)})

    @property
    def _next_id(self) -> int:
        return len(self.steps) + 1

    def _add_turn(self, fields: JsonObject, content: Content, *, from_prompt: bool) -> None:
        del fields["role"]
        self._calls = take_calls(fields)
        metrics = None if from_prompt else take_metrics(fields)
        step = present(
            step_id=self._next_id,
            timestamp=take_timestamp(fields),
            source="agent",
            model_name=_take_model(fields),
            message=content.message,
            reasoning_content=_take_reasoning(fields),
            tool_calls=self._calls.calls or None,
            metrics=metrics,
            llm_call_count=1 if metrics else None,
            extra=_extra(fields, content),
        )
        self.steps.append(step)
        if not from_prompt:
            self.agent_steps.append(step)
        self._turn = step

    def _add_result(self, fields: JsonObject, content: Content, message: Mapping[Any, Any]) -> None:
        runs = _conversations(message)
        if runs:
            del fields["subagents"]
        original_role = {"original_role": fields["role"]}
        result = _result(fields, content, self._calls)
        if runs:
            self.delegations.append((result, runs))
            if "content" not in message:
                del result["content"]  # the call was not over when the rollout was
        if self._calls is None:
            observation = {"results": [result]}
            step = {"step_id": self._next_id, "source": "system", "message": ""}
            self.steps.append({**step, "observation": observation, "extra": original_role})
        else:
            self._turn.setdefault("observation", {"results": []})["results"].append(result)


def _conversations(message: Mapping[Any, Any]) -> list[Mapping[str, Any]]:
    """Return the conversations of the agents behind a tool's result, if it has any of that form."""
    given: object = message.get("subagents")
    runs = cast("list[Any]", given) if isinstance(given, list) else []
    return runs if all(map(_is_conversation, runs)) else []


def _is_conversation(run: object) -> bool:
    messages = cast("Mapping[Any, Any]", run).get("messages") if isinstance(run, Mapping) else None
    turns = cast("list[Any]", messages) if isinstance(messages, list) else []
    return bool(turns) and all(isinstance(turn, Mapping) for turn in turns)


def split_message(
    message: object, files: MediaFiles | None, *, trust: bool = True
) -> tuple[JsonObject, Content]:
    """Return a private, cleaned copy of a message without its content, and the content."""
    # Asking for the type alone is a third of the time that a plain message takes.
    if type(message) is not dict and not isinstance(message, Mapping):
        return {}, read_content(message, files)
    given = cast("Mapping[Any, Any]", message)
    # A null says nothing; a NaN, which is cleaned to null, says that there was something.
    said = {k: value for k, value in given.items() if k != "content" and value is not None}
    tokens = {key: said.pop(key) for key in TOKEN_KEYS if key in said}
    fields = clean_members(said)
    for key, value in tokens.items():
        fields[key] = find_numbers(value, trust=trust) or clean(value)
    return fields, read_content(given.get("content"), files)


def _other_step(fields: JsonObject, content: Content) -> JsonObject:
    role = fields.pop("role", None)
    source = _SOURCES.get(role, "user") if isinstance(role, str) else "user"
    if role == source and not fields and not content.beside:
        return {"source": source, "message": content.message}
    kept = {} if role == source else {"original_role": role}
    return present(
        timestamp=take_timestamp(fields),
        source=source,
        message=content.message,
        extra=_extra(fields, content, **kept),
    )


def _result(fields: JsonObject, content: Content, calls: TurnCalls | None) -> JsonObject:
    role = fields.pop("role", None)
    given = fields.pop("tool_call_id", None)
    # The answer to a legacy function call names the function instead of an id.
    result_id = fields.get("name") if given is None and role == "function" else given
    call_id = calls.answered_by(id_text(result_id)) if calls else None
    kept = {"original_role": role} if role == "function" else {}
    if call_id is None and given is not None:
        kept["tool_call_id"] = given
    extra = _extra(fields, content, **kept)
    return present(source_call_id=call_id, content=content.message, extra=extra)


def _take_model(fields: JsonObject) -> str | None:
    if fields.keys().isdisjoint(_MODEL_KEYS):
        return None
    for key in ("model", "model_name"):
        if isinstance(name := fields.get(key), str) and name:
            del fields[key]
            return name
    response = as_object((as_object(fields.get("extra")) or {}).get("response")) or {}
    name = response.get("model")
    return name if isinstance(name, str) and name else None


def _take_reasoning(fields: JsonObject) -> str | None:
    for key in ("reasoning_content", "reasoning"):
        if isinstance(text := fields.get(key), str):
            del fields[key]
            if fields.get("reasoning") == text:
                del fields["reasoning"]
            return text
    return None


def _extra(fields: JsonObject, content: Content, **kept: object) -> JsonObject | None:
    """Collect what has no field of its own, the members of a message's own `extra` included."""
    if not fields and not content.beside:
        return kept or None
    extra = with_lists(fields)
    if content.beside:
        extra["content_parts"] = content.beside
    if (inner := as_object(extra.get("extra"))) is not None and not inner.keys() & extra.keys():
        del extra["extra"]
        extra |= inner
    return {**extra, **kept} or None
