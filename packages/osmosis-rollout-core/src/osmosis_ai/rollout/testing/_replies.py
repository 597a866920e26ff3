"""Answers of a scripted policy: what is sent, when, and where it breaks off."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from osmosis_ai.rollout.testing._message import (
    Text,
    ToolCall,
    deltas,
    single_delta,
    whole_message,
)
from osmosis_ai.rollout.testing._steps import Comment, Cut, Gate, Pause, Step

DONE: Final = b"data: [DONE]\n\n"

_EVENT_STREAM: Final = {"Content-Type": "text/event-stream; charset=utf-8"}
_JSON: Final = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Reply:
    """One answer, sent step by step; `reply`, `stream_reply` and their like build it.

    Attributes:
        steps: What happens in order (see `Step`). The response's head is sent together with the
            first bytes of its body, so a pause in front delays it, and a cut in front means that
            there is no response at all.
        status: The HTTP status.
        headers: The response's headers; framing headers are added.
        completion: The whole answer for requests that do not ask for a stream; without one they
            get the steps too.
        framed: False sends bytes to the socket as they are, with no head of ours, and closes the
            connection at the end.

    Raises:
        TypeError: a step is of no kind that `Step` names, or is a dict that JSON cannot hold.
    """

    steps: tuple[Step, ...]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: dict(_EVENT_STREAM))
    completion: Mapping[str, Any] | None = None
    framed: bool = True

    def __post_init__(self) -> None:
        # The test that wrote the script gets the error, not the server's thread.
        for step in self.steps:
            _check_step(step)

    def insert(self, index: int, *steps: Step) -> "Reply":
        """Return this reply with `steps` put in before the step at `index`, as in a list."""
        return replace(self, steps=(*self.steps[:index], *steps, *self.steps[index:]))

    def cut(self, after: int, *, reset: bool = False) -> "Reply":
        """Return this reply broken off after its first `after` steps.

        Args:
            after: How many steps are still sent.
            reset: Whether the connection is reset (RST) rather than closed.
        """
        return replace(self, steps=(*self.steps[:after], Cut(reset=reset)))


def reply(
    content: Text | None = None,
    *,
    tool_calls: Sequence[ToolCall] = (),
    interleaved: bool = False,
    reasoning: Text | None = None,
    finish_reason: str | None = None,
    usage: Mapping[str, Any] | None = None,
    usage_on_finish: bool = False,
    prompt_token_ids: Sequence[int] | None = None,
    token_ids: Sequence[int] | None = None,
    logprobs: Sequence[Mapping[str, Any]] | None = None,
    one_chunk: bool = False,
    model: str | None = None,
) -> Reply:
    """Answer with one well-formed assistant message.

    Args:
        content: The text, or the fragments that it is streamed in.
        tool_calls: The calls, in their order.
        interleaved: Whether the calls' fragments are streamed in turns instead of call by call.
        reasoning: The `reasoning_content`, or its fragments; streamed before the content.
        finish_reason: By default `tool_calls` if there are any, else `stop`.
        usage: The token counts; by default none are sent. They come in a last chunk that has no
            choices.
        usage_on_finish: Whether they come on the chunk with the finish reason instead.
        prompt_token_ids: Sent on the first chunk, as vLLM does.
        token_ids: The completion's token ids, spread over the chunks.
        logprobs: Entries of `logprobs.content`, spread likewise.
        one_chunk: Whether a single chunk holds everything.
        model: The model that answers; by default the one that was asked for.
    """
    message = whole_message(content, reasoning, tool_calls)
    finish = finish_reason or ("tool_calls" if tool_calls else "stop")
    if one_chunk:
        chunks = [_chunk(single_delta(message), finish)]
        carriers = chunks
    else:
        parts = deltas(content, reasoning, tool_calls, interleaved=interleaved)
        chunks = [*map(_chunk, parts), _chunk({}, finish)]
        carriers = chunks[1:-1] or chunks[:1]  # the first chunk only opens the message
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    for target, shares in ((carriers, len(carriers)), ([whole], 1)):
        for position, carrier in enumerate(target):
            _add_tokens(carrier, token_ids, logprobs, position, shares)
    if usage is not None and not (usage_on_finish or one_chunk):
        chunks.append({"choices": []})
    for first, last in ((chunks[0], chunks[-1]), (whole, whole)):
        first |= _given(prompt_token_ids=prompt_token_ids)
        last |= _given(usage=usage)
    named = _given(model=model)
    return Reply(
        steps=(*({**named, **item} for item in chunks), DONE), completion={**named, **whole}
    )


def chunk(*, finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    """Return one streamed chunk for `stream_reply`: `chunk(content="4", finish_reason="stop")`.

    Add other keys to the dict that comes back. `id`, `object`, `created` and `model` are filled
    in when it is sent, unless they are there.
    """
    return _chunk(delta, finish_reason)


def stream_reply(*steps: Step, done: bool = True) -> Reply:
    """Answer with a stream of hand-written steps, however odd.

    Args:
        steps: See `Step`: dicts become events (`chunk` builds them, `{"error": ...}` is an error
            inside the stream), bytes are sent as they are.
        done: Whether `data: [DONE]` follows.
    """
    return Reply(steps=(*steps, DONE) if done else steps)


def error_reply(
    status: int,
    error: str | Mapping[str, Any] = "scripted error",
    *,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """Answer with an error before any stream.

    Args:
        status: The HTTP status.
        error: A message, sent as an OpenAI-style `{"error": {...}}`; or the whole JSON body; or,
            when it begins with `<`, an HTML page such as proxies send.
        headers: Further headers, e.g. `{"Retry-After": "1"}`.
    """
    if isinstance(error, str) and error.startswith("<"):
        body, kind = error, {"Content-Type": "text/html; charset=utf-8"}
    else:
        if isinstance(error, str):
            error_type = "invalid_request_error" if status < 500 else "server_error"
            error = {"error": {"message": error, "type": error_type, "param": None, "code": None}}
        body, kind = json.dumps(error), _JSON
    return Reply(steps=(body.encode(),), status=status, headers={**kind, **(headers or {})})


def raw_reply(*steps: Step) -> Reply:
    """Answer with bytes straight on the socket, HTTP head included; then close the connection."""
    return Reply(steps=steps, framed=False)


def unstreamed(reply: Reply, body: bytes) -> Reply:
    """Return the reply with `body` for all that it streams; what delays or cuts it stays."""
    sends = [isinstance(step, dict | bytes | Comment) for step in reply.steps]
    first = sends.index(True) if True in sends else len(sends)
    rest = [step for step, sent in zip(reply.steps, sends, strict=True) if not sent]
    steps = (*rest[:first], body, *rest[first:])
    return replace(reply, steps=steps, headers={**reply.headers, **_JSON})


def _check_step(step: object) -> None:
    if isinstance(step, dict):
        json.dumps(step)
    elif not isinstance(step, bytes | Comment | Pause | Gate | Cut):
        msg = f"a reply has no steps of type {type(step).__name__}"
        raise TypeError(msg)


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def _given(**fields: object) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _add_tokens(
    carrier: dict[str, Any],
    token_ids: Sequence[int] | None,
    logprobs: Sequence[Mapping[str, Any]] | None,
    position: int,
    shares: int,
) -> None:
    choice = carrier["choices"][0]
    if token_ids is not None:
        choice["token_ids"] = _share(token_ids, position, shares)
    if logprobs is not None:
        choice["logprobs"] = {"content": _share(logprobs, position, shares)}


def _share[T](items: Sequence[T], position: int, shares: int) -> list[T]:
    return list(items[len(items) * position // shares : len(items) * (position + 1) // shares])
