"""Strict assembly of one reply from the chunks of a chat completion."""

from collections.abc import Mapping
from typing import Any, Final, cast

from osmosis_ai.rollout.policy._errors import PolicyError
from osmosis_ai.rollout.policy._reply import PolicyPiece, PolicyReply, ToolCallPiece
from osmosis_ai.rollout.policy._tokens import TOKEN_KEYS, TokenRecord
from osmosis_ai.rollout.policy._tool_calls import ToolCalls
from osmosis_ai.rollout.policy._values import as_array, as_object

# What has a field of its own in the reply, or says nothing about it.
_CHOICE_KEYS: Final = frozenset({"index", *TOKEN_KEYS})
_CHUNK_KEYS: Final = frozenset({"choices", "error", "object", "prompt_token_ids"})
# What is of another type is as good as absent.
_KNOWN: Final[Mapping[str, Any]] = {"model": str, "created": int | float}
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
        for key, value in chunk.items():
            if key == "usage":
                self._usage = as_object(value) or self._usage
            elif key in _KNOWN:
                if isinstance(value, _KNOWN[key]):
                    self._known.setdefault(key, value)
            elif key not in _CHUNK_KEYS:
                _keep(self._extra, key, value)
        choice = _first(as_array(chunk.get("choices")))
        # vLLM's prompt tokens may come with no choice at all.
        self._tokens.add(chunk, choice or {})
        return None if choice is None else self._add_choice(choice)

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

    def _add_choice(self, choice: dict[str, Any]) -> PolicyPiece | None:
        delta: dict[str, Any] = {}
        message: dict[str, Any] = {}
        for key, value in choice.items():
            if key == "delta":
                delta = as_object(value)
            elif key == "message":
                message = as_object(value)
            elif key == "finish_reason":
                self._finish_reason = _as_text(key, value) or self._finish_reason
            elif key not in _CHOICE_KEYS:
                _keep(self._extra, key, value)
        if delta:
            return self._add_delta(delta)
        # A summary after the pieces would double them.
        return None if self._has_output else self._add_delta(message, is_whole=True)

    def _add_delta(self, delta: dict[str, Any], *, is_whole: bool = False) -> PolicyPiece | None:
        content, reasoning, refusal = "", "", ""
        calls: tuple[ToolCallPiece, ...] = ()
        for key, value in delta.items():
            if value is None or key == "role":
                continue
            if key == "content":
                content = self._add_content(value)
            elif key in {"reasoning", "reasoning_content"}:
                # Some servers send it under both names.
                if value and (key == "reasoning_content" or not delta.get("reasoning_content")):
                    reasoning = self._add_text("reasoning_content", value)
            elif key == "refusal":
                refusal = self._add_text(key, value)
            elif key == "tool_calls":
                calls = self._tool_calls.add(as_array(value), are_whole=is_whole)
            elif key in _UNSUPPORTED:
                msg = f"the policy's answer holds {key!r}, which this client cannot put together"
                raise PolicyError(msg)
            else:
                _keep(self._message_extras, key, value)
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
        if (said := self._texts.get(key)) is None:
            said = self._texts[key] = []
        said.append(text)
        return text

    def _message(self) -> dict[str, Any]:
        texts = {key: _join(parts) for key, parts in self._texts.items()}
        message: dict[str, Any] = {"role": "assistant", "content": texts.get("content")}
        message |= {key: texts[key] for key in ("reasoning_content", "refusal") if texts.get(key)}
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


def _keep(kept: dict[str, Any], key: str, value: object) -> None:
    """Keep the value of an unknown key: the first one, or all entries where they are lists."""
    if value is None:
        return
    if (more := as_array(value)) and (held := as_array(kept.get(key))):
        kept[key] = [*held, *more]
    else:
        kept.setdefault(key, value)


def _first(choices: list[Any]) -> dict[str, Any] | None:
    for choice in map(as_object, choices):
        if not choice.get("index"):
            return choice
    return None


def _join(parts: list[str]) -> str:
    text = "".join(parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        # JSON escapes can split one character into two halves that come in two chunks.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text
