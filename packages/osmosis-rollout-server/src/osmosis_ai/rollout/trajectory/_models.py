"""The models of ATIF, the Agent Trajectory Interchange Format, versions 1.0 to 1.8.

Format: https://www.harborframework.com/docs/agents/trajectory-format
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

type SchemaVersion = Literal[
    "ATIF-v1.0",
    "ATIF-v1.1",
    "ATIF-v1.2",
    "ATIF-v1.3",
    "ATIF-v1.4",
    "ATIF-v1.5",
    "ATIF-v1.6",
    "ATIF-v1.7",
    "ATIF-v1.8",
]

type ImageMediaType = Literal["image/jpeg", "image/png", "image/gif", "image/webp"]

type AudioMediaType = Literal[
    "audio/wav",
    "audio/mpeg",
    "audio/mp4",
    "audio/aac",
    "audio/ogg",
    "audio/flac",
    "audio/webm",
    "audio/aiff",
]

AUDIO_ALIASES: Final = {
    "audio/m4a": "audio/mp4",
    "audio/mp3": "audio/mpeg",
    "audio/mpga": "audio/mpeg",
    "audio/vnd.wave": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/x-aac": "audio/aac",
    "audio/x-aiff": "audio/aiff",
    "audio/x-flac": "audio/flac",
    "audio/x-m4a": "audio/mp4",
    "audio/x-mpeg": "audio/mpeg",
    "audio/x-wav": "audio/wav",
}

_AGENT_ONLY = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")
_CALL_ONLY = ("metrics", "reasoning_content")


def canonical_audio_type(value: Any) -> Any:
    """Return the registered spelling of an audio media type; anything else as it is."""
    if not isinstance(value, str):
        return value
    spelled = value.strip().lower()
    return AUDIO_ALIASES.get(spelled, spelled)


def _check_timestamp(value: str) -> str:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        msg = "must be an ISO 8601 date and time"
        raise ValueError(msg) from None
    return value


class _AtifModel(BaseModel):
    # Errors name the place and never repeat what a document holds: prompts are private.
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class ImageSource(_AtifModel):
    """Where an image lies.

    Attributes:
        media_type: What kind of image it is.
        path: A path relative to the document, an absolute path or a URL.
    """

    media_type: ImageMediaType
    path: str


class AudioSource(_AtifModel):
    """Where a sound lies (since version 1.8).

    Attributes:
        media_type: What kind of audio it is; usual aliases such as `audio/mp3` are normalised.
        path: A path relative to the document, an absolute path or a URL.
        duration_sec: How long it plays, in seconds.
    """

    media_type: Annotated[AudioMediaType, BeforeValidator(canonical_audio_type)]
    path: str
    duration_sec: float | None = Field(default=None, ge=0)


class ContentPart(_AtifModel):
    """One part of a message that is more than text.

    Attributes:
        type: What the part is; exactly the field that fits it is set.
        text: The text of a text part.
        source: The place of an image's or a sound's file.
    """

    type: Literal["text", "image", "audio"]
    text: str | None = None
    source: ImageSource | AudioSource | None = None

    @model_validator(mode="after")
    def _matching_field(self) -> Self:
        if self.type == "text":
            fits = self.text is not None and self.source is None
        else:
            kind = ImageSource if self.type == "image" else AudioSource
            fits = self.text is None and isinstance(self.source, kind)
        if not fits:
            wanted = "text" if self.type == "text" else f"a source of type {self.type}"
            msg = f"a part of type {self.type} must have {wanted}, and nothing else"
            raise ValueError(msg)
        return self


class SubagentTrajectoryRef(_AtifModel):
    """A reference to the trajectory of an agent that was called as a tool.

    Attributes:
        trajectory_id: The id of an entry of the root's `subagent_trajectories`.
        session_id: The run that the subagent belonged to; it resolves nothing.
        trajectory_path: The place of a document of its own.
        extra: Anything else.
    """

    trajectory_id: str | None = None
    session_id: str | None = None
    trajectory_path: str | None = None
    extra: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _resolvable(self) -> Self:
        if self.trajectory_id is None and self.trajectory_path is None:
            msg = "must have a trajectory_id or a trajectory_path"
            raise ValueError(msg)
        return self


class ToolCall(_AtifModel):
    """A call that the agent asked for.

    Attributes:
        tool_call_id: The call's id, unique in its step.
        function_name: The tool's name.
        arguments: The arguments as a JSON object.
        extra: Anything else.
    """

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class ObservationResult(_AtifModel):
    """What came back from one tool call or from the environment.

    Attributes:
        source_call_id: The tool call of the same step that this answers.
        content: What came back.
        subagent_trajectory_ref: The trajectories of the agents that did the work.
        extra: Anything else.
    """

    source_call_id: str | None = None
    content: str | list[ContentPart] | None = None
    subagent_trajectory_ref: list[SubagentTrajectoryRef] | None = None
    extra: dict[str, Any] | None = None


class Observation(_AtifModel):
    """What came back after a step.

    Attributes:
        results: The results in the order in which they came.
    """

    results: list[ObservationResult]


class Metrics(_AtifModel):
    """Measurements of the model call behind a step.

    Attributes:
        prompt_tokens: Tokens that went in, cached ones included.
        completion_tokens: Tokens that came out.
        cached_tokens: The part of `prompt_tokens` that was cached.
        cost_usd: The price of the call in US dollars.
        prompt_token_ids: The tokens that went in.
        completion_token_ids: The tokens that came out.
        logprobs: The natural log probability of each token that came out.
        extra: Anything else.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: dict[str, Any] | None = None


class FinalMetrics(_AtifModel):
    """Totals of a trajectory.

    Attributes:
        total_prompt_tokens: Tokens that went in over all calls, cached ones included.
        total_completion_tokens: Tokens that came out over all calls.
        total_cached_tokens: Cached tokens over all calls.
        total_cost_usd: The price in US dollars.
        total_steps: The number of steps.
        extra: Anything else.
    """

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int | None = Field(default=None, ge=0)
    extra: dict[str, Any] | None = None


class Step(_AtifModel):
    """One turn of a conversation, with the tool results that followed it.

    Attributes:
        step_id: The position in the trajectory, from 1.
        timestamp: When it happened, ISO 8601.
        source: Who it came from.
        model_name: The model that answered (agent steps only, as the next two).
        reasoning_effort: How hard the model was asked to think.
        message: The text, or the parts of a message that is more than text.
        reasoning_content: What the model thought (agent steps only, as the next one).
        tool_calls: The calls that the agent asked for.
        observation: What came back.
        metrics: Measurements of the model call (agent steps only).
        is_copied_context: Whether the step repeats one of an earlier trajectory.
        llm_call_count: How many model calls the step stands for; with 0 there are neither metrics
            nor reasoning.
        extra: Anything else.
    """

    step_id: int = Field(ge=1)
    timestamp: Annotated[str, AfterValidator(_check_timestamp)] | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    message: str | list[ContentPart]
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = Field(default=None, ge=0)
    extra: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _cross_rules(self) -> Self:
        if self.source != "agent":
            self._must_be_absent(_AGENT_ONLY, "belongs on agent steps only")
        elif self.llm_call_count == 0:
            self._must_be_absent(_CALL_ONLY, "cannot be there when llm_call_count is 0")
        if self.tool_calls or self.observation:
            self._check_call_ids(self.tool_calls or [], self.observation)
        return self

    def _must_be_absent(self, names: Iterable[str], rule: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                msg = f"{name} {rule}"
                raise ValueError(msg)

    @staticmethod
    def _check_call_ids(calls: list[ToolCall], observation: Observation | None) -> None:
        known: set[str | None] = {None}
        for index, call in enumerate(calls):
            if call.tool_call_id in known:
                msg = f"tool_calls.{index}.tool_call_id must be unique in its step"
                raise ValueError(msg)
            known.add(call.tool_call_id)
        for index, result in enumerate(observation.results if observation else ()):
            if result.source_call_id not in known:
                msg = f"observation.results.{index}.source_call_id names no tool call of the step"
                raise ValueError(msg)


class Agent(_AtifModel):
    """The agent system that made a trajectory.

    Attributes:
        name: Its name.
        version: Its version.
        model_name: The model of the steps that name none.
        tool_definitions: The tools that it had, in OpenAI's function schema.
        extra: Anything else.
    """

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: dict[str, Any] | None = None


class Trajectory(_AtifModel):
    """One ATIF document: a whole conversation, its metrics and where it came from.

    Documents of every version from 1.0 to 1.8 load; `Trajectory.model_validate_json(data)` reads
    one. Format: https://www.harborframework.com/docs/agents/trajectory-format

    Attributes:
        schema_version: The version of the format.
        session_id: The run that this belongs to; other documents may share it.
        trajectory_id: The document's own id.
        agent: What made it.
        steps: The conversation, at least one step; their ids count from 1.
        notes: Text for people.
        final_metrics: The totals.
        continued_trajectory_ref: The document that goes on where this one ends.
        extra: Anything else.
        subagent_trajectories: Trajectories of agents that this one called; each has a
            trajectory_id of its own.

    Raises:
        pydantic.ValidationError: on construction, when the data is no valid document; its errors
            name the step (`steps.<index>`, from 0) and the field.
    """

    schema_version: SchemaVersion
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: Agent
    steps: list[Step] = Field(min_length=1)
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    extra: dict[str, Any] | None = None
    subagent_trajectories: list["Trajectory"] | None = None

    @model_validator(mode="after")
    def _ids_in_order(self) -> Self:
        for index, step in enumerate(self.steps):
            if step.step_id != index + 1:
                msg = f"steps.{index}.step_id must be {index + 1}: the ids count from 1"
                raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _subagents_have_ids(self) -> Self:
        seen: set[str] = set()
        for index, subagent in enumerate(self.subagent_trajectories or ()):
            if subagent.trajectory_id is None or subagent.trajectory_id in seen:
                msg = f"subagent_trajectories.{index}.trajectory_id must be there and be unique"
                raise ValueError(msg)
            seen.add(subagent.trajectory_id)
        return self
