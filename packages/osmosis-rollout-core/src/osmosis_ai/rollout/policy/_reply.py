"""What a call to the policy returns."""

from dataclasses import dataclass, field
from typing import Any, Final

from osmosis_ai.rollout.types.messages import MessageDict

ANNOTATION_KEYS: Final = frozenset(
    {"created_at", "logprobs", "model", "prompt_token_ids", "token_ids", "usage"}
)
"""The keys that `PolicyReply.annotated` adds, which are never sent to the policy again."""


@dataclass(frozen=True, slots=True)
class ToolCallPiece:
    """A fragment of one tool call.

    Attributes:
        index: The call's place among the reply's calls, counted from 0 by first appearance.
        id: The call's id, once the endpoint has sent it.
        name: The tool's name, once the endpoint has sent it.
        arguments: The next part of the arguments' JSON text.
    """

    index: int
    id: str | None
    name: str | None
    arguments: str


@dataclass(frozen=True, slots=True)
class PolicyPiece:
    """What one chunk added to the reply.

    Attributes:
        content: The next part of the answer's text.
        reasoning: The next part of the reasoning.
        refusal: The next part of a refusal.
        tool_calls: Fragments of tool calls, in the order of the chunk.
    """

    content: str = ""
    reasoning: str = ""
    refusal: str = ""
    tool_calls: tuple[ToolCallPiece, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReply:
    """One whole answer of the policy. What the endpoint did not send is None.

    Attributes:
        message: The assistant's message in chat-completions form: `role`, `content` (text, or None
            beside tool calls) and, when given, `tool_calls`, `reasoning_content`, `refusal` and the
            provider's own keys. It can be appended to the conversation as it is.
        finish_reason: Why the policy stopped: `stop`, `tool_calls`, `length`...
        usage: The token counts as the endpoint spelled them.
        model: The model that the endpoint says it used.
        created: When the endpoint says it answered, in epoch seconds.
        prompt_token_ids: The prompt's tokens.
        token_ids: The answer's tokens.
        logprobs: The log probability of each of the answer's tokens.
        truncated: Whether a tool call's arguments end in the middle of their JSON. The text stays
            as it came; do not run the tool on it.
        extra: What else came with the answer, by the endpoint's own names (`id`,
            `system_fingerprint`...); `logprobs` are the entries with their alternatives.
    """

    message: MessageDict
    finish_reason: str
    usage: dict[str, Any] | None = None
    model: str | None = None
    created: int | float | None = None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    truncated: bool = False
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def text(self) -> str:
        """The answer's text, empty when there is none."""
        content: str | None = self.message["content"]
        return content or ""

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The answer's tool calls, empty when there are none."""
        calls: list[dict[str, Any]] = self.message.get("tool_calls", [])
        return calls

    @property
    def annotated(self) -> MessageDict:
        """The message plus what an archive wants to know of its making.

        `model`, `usage`, `created_at`, `prompt_token_ids`, `token_ids` and `logprobs` are added
        when the endpoint gave them. `PolicyClient` leaves them out of what it sends, so annotated
        messages can stand in a conversation.
        """
        own = {key: value for key, value in self.telemetry.items() if key in ANNOTATION_KEYS}
        return {**self.message, **own}

    @property
    def telemetry(self) -> dict[str, Any]:
        """What is known of the call besides its message, by the keys that archives understand."""
        known = {
            "model": self.model,
            "usage": self.usage,
            "created_at": self.created,
            "prompt_token_ids": self.prompt_token_ids,
            "token_ids": self.token_ids,
            "logprobs": self.logprobs,
            "finish_reason": self.finish_reason,
            "truncated": self.truncated or None,
        }
        return {key: value for key, value in known.items() if value is not None}
