"""Strict assembly of one reply from the chunks of a chat completion."""

from collections.abc import Mapping
from typing import Any, Final, cast

from osmosis_ai.rollout.policy._errors import PolicyError
from osmosis_ai.rollout.policy._reply import PolicyPiece, PolicyReply
from osmosis_ai.rollout.policy._tokens import TokenRecord
from osmosis_ai.rollout.policy._tool_calls import ToolCalls
from osmosis_ai.rollout.policy._values import as_array, as_object

# Where a choice and a chunk keep what has a field of its own in the reply.
_CHOICE_KEYS: Final = frozenset(
    {"index", "delta", "message", "finish_reason", "logprobs"}
    | {"token_ids", "prompt_token_ids", "meta_info"}
)
_CHUNK_KEYS: Final = frozenset(
    {"choices", "created", "error", "model", "object", "prompt_token_ids", "usage"}
)
_DELTA_KEYS: Final = frozenset(
    {"role", "content", "reasoning", "reasoning_content", "refusal", "tool_calls"}
)
# What is of another type is as good as absent.
_KNOWN: Final[Mapping[str, Any]] = {"model": str, "created": (int, float)}
# Streamed in pieces of their own kind: keeping the first piece would pass off a part as the whole.
_UNSUPPORTED: Final = ("audio", "function_call")
# What proxies and inference servers write when they gave up on a generation.
_BROKEN_OFF: Final = frozenset({"abort", "error"})


class Assembly:
    """One reply in the making: feed it every chunk, then ask for the reply.

    The first choice counts; others are passed over.
    """

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._tool_calls = ToolCalls()
        self._tokens = TokenRecord()
        self._finish_reason: str | None = None
        self._usage: dict[str, Any] | None = None
        self._message_extras: dict[str, Any] = {}
        self._known: dict[str, Any] = {}
        self._extra: dict[str, Any] = {}

    def add(self, chunk: dict[str, Any]) -> PolicyPiece | None:
        """Take the next chunk and return what it adds to the message, if anything.

        A chunk may also be a whole completion, with `message` in place of `delta`.

        Raises:
            PolicyError: the chunk does not fit what came before, or holds what is no text.
        """
        self._usage = as_object(chunk.get("usage")) or self._usage
        for key, kind in _KNOWN.items():
            if isinstance(value := chunk.get(key), kind):
                self._known.setdefault(key, value)
        _keep_once(self._extra, chunk, _CHUNK_KEYS)
        choices = map(as_object, as_array(chunk.get("choices")))
        choice = next((item for item in choices if not item.get("index")), None)
        if choice is None:
            # vLLM's prompt tokens may come with no choice at all.
            self._tokens.add(chunk, {})
            return None
        return self._add_choice(chunk, choice)

    def reply(self) -> PolicyReply:
        """Return the whole reply.

        Raises:
            PolicyError: no chunk said that the policy had finished, or it said nothing at all.
        """
        reason = self._finish_reason
        if reason is None:
            msg = "the policy's answer was cut off: it ended without a finish_reason"
            raise PolicyError(msg)
        if reason in _BROKEN_OFF:
            msg = f"the endpoint broke off the policy's answer (finish_reason {reason})"
            raise PolicyError(msg)
        if reason == "length" and not self._has_output:
            msg = "the policy's answer is empty: it reached its length limit before any output"
            raise PolicyError(msg)
        extra = self._extra
        if self._tokens.logprob_entries:
            extra = {**extra, "logprobs": self._tokens.logprob_entries}
        return PolicyReply(
            message=self._message(),
            finish_reason=reason,
            usage=self._usage,
            prompt_token_ids=self._tokens.prompt_token_ids,
            token_ids=self._tokens.token_ids,
            logprobs=self._tokens.logprobs,
            truncated=self._tool_calls.is_cut(by_length=reason == "length"),
            extra=extra,
            **self._known,
        )

    @property
    def _has_output(self) -> bool:
        return bool(self._tool_calls) or any(any(parts) for parts in self._texts.values())

    def _add_choice(self, chunk: dict[str, Any], choice: dict[str, Any]) -> PolicyPiece | None:
        self._tokens.add(chunk, choice)
        reason = _as_text("finish_reason", choice.get("finish_reason"))
        self._finish_reason = reason or self._finish_reason
        _keep_once(self._extra, choice, _CHOICE_KEYS)
        if delta := as_object(choice.get("delta")):
            return self._add_delta(delta)
        # A summary after the pieces would double them.
        if self._has_output:
            return None
        return self._add_delta(as_object(choice.get("message")), is_whole=True)

    def _add_delta(self, delta: dict[str, Any], *, is_whole: bool = False) -> PolicyPiece | None:
        for key in _UNSUPPORTED:
            if delta.get(key) is not None:
                msg = f"the policy's answer holds {key!r}, which this client cannot put together"
                raise PolicyError(msg)
        _keep_once(self._message_extras, delta, _DELTA_KEYS)
        calls = self._tool_calls.add(as_array(delta.get("tool_calls")), are_whole=is_whole)
        content = self._add_content(delta.get("content"))
        # Some servers send the reasoning under both names.
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        reasoning = self._add_text("reasoning_content", thought)
        refusal = self._add_text("refusal", delta.get("refusal"))
        if not (content or reasoning or refusal or calls):
            return None
        return PolicyPiece(content, reasoning, refusal, calls)

    def _add_content(self, content: object) -> str:
        if isinstance(content, list):
            return "".join([self._add_part(part) for part in as_array(cast("object", content))])
        return self._add_text("content", content)

    def _add_part(self, part: object) -> str:
        if isinstance(part, str):
            return self._add_text("content", part)
        fields = as_object(part)
        text = fields.get("text")
        if fields.get("type", "text") not in {"text", "output_text"} or not isinstance(text, str):
            msg = "the policy's answer holds a content part that is no text"
            raise PolicyError(msg)
        return self._add_text("content", text)

    def _add_text(self, key: str, text: object) -> str:
        if (text := _as_text(key, text)) is None:
            return ""
        self._texts.setdefault(key, []).append(text)
        return text

    def _message(self) -> dict[str, Any]:
        texts = {key: _join(parts) for key, parts in self._texts.items()}
        message: dict[str, Any] = {"role": "assistant", "content": texts.pop("content", None)}
        message |= {key: text for key, text in texts.items() if text}
        if self._tool_calls:
            message["tool_calls"] = self._tool_calls.messages()
        elif message["content"] is None:
            # Servers refuse a null content that stands alone.
            message["content"] = ""
        return message | self._message_extras


def _as_text(key: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        msg = f"the policy's answer holds a {key!r} that is no text"
        raise PolicyError(msg)
    return value


def _keep_once(kept: dict[str, Any], source: dict[str, Any], known: frozenset[str]) -> None:
    """Keep the values of unknown keys: the first one, or all entries where they are lists."""
    for key, value in source.items():
        if key in known or value is None:
            continue
        if (more := as_array(value)) and (held := as_array(kept.get(key))):
            kept[key] = [*held, *more]
        else:
            kept.setdefault(key, value)


def _join(parts: list[str]) -> str:
    text = "".join(parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        # JSON escapes can split one character into two halves that come in two chunks.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text
