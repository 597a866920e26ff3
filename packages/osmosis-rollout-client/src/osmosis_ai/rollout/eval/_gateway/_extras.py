"""What the gateway asks an upstream for beyond what the rollout asked, and takes out again.

Usage is asked for as OpenAI has it (`stream_options.include_usage`), log probabilities too
(`logprobs`); token ids have another spelling in every engine.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from osmosis_ai.rollout.eval._json import compact_json
from osmosis_ai.rollout.policy.answers import as_array, as_object

_VLLM: Final = {"return_token_ids": True}
_SGLANG: Final = {"return_meta_info": True, "return_prompt_token_ids": True}
_OWNERS: Final[Mapping[str, dict[str, Any]]] = {
    "vllm": _VLLM,
    "sglang": _SGLANG,
    "llamacpp": {},  # its log probabilities name the tokens
    # They have no ids to give, and refuse what they do not know.
    "openai": {},
    "system": {},
    "library": {},  # Ollama
}
_ANSWERS: Final = {
    "return_token_ids": frozenset({"prompt_token_ids", "token_ids"}),
    "return_meta_info": frozenset({"meta_info"}),
    "return_prompt_token_ids": frozenset({"prompt_token_ids"}),
}
"""The keys of chunks and choices that answer a parameter."""
_WORDS: Final = {"stream_options": "usage", "logprobs": "log probabilities"}


def token_parameters(models: object) -> dict[str, Any]:
    """Return the parameters that make an engine send token ids.

    Args:
        models: The engine's answer to `GET /models`; its `owned_by` tells which one it is. One
            that cannot be told is asked in every spelling.
    """
    for model in map(as_object, as_array(as_object(models).get("data"))):
        owner = str(model.get("owned_by")).lower()
        if owner.startswith("openai"):
            owner = "openai"
        if owner in _OWNERS:
            return _OWNERS[owner]
    return _VLLM | _SGLANG


@dataclass(frozen=True, slots=True)
class Asked:
    """What an upstream is asked.

    Attributes:
        own: The rollout's request, with the real model.
        added: The parameters that the gateway sends besides, or in place of the rollout's.
    """

    own: Mapping[str, Any]
    added: Mapping[str, Any]

    def body(self, refused: Set[str]) -> bytes:
        """Return the request's body, with those of the added parameters that are not refused."""
        added = {name: value for name, value in self.added.items() if name not in refused}
        return compact_json({**self.own, **added})


def wanted_by(names: Iterable[str]) -> str:
    """Return what the gateway adds parameters for, in words."""
    return ", ".join(sorted({_WORDS.get(name, "token ids") for name in names}))


@dataclass(frozen=True, slots=True)
class Extras:
    """What an answer is to lose before it goes on to the rollout.

    Attributes:
        keys: Keys of its chunks and of their choices.
    """

    keys: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.keys)

    def may_be_in(self, data: bytes) -> bool:
        """Tell whether an event, or a document, may hold some of them."""
        return any(key.encode() in data for key in self.keys)

    def without(self, chunk: dict[str, Any]) -> dict[str, Any] | None:
        """Return a chunk, or a whole completion, without them; None when nothing is left of it.

        The very same object is returned where it holds none.
        """
        choices = [as_object(choice) for choice in as_array(chunk.get("choices"))]
        if not (self.keys & chunk.keys() or any(self.keys & choice.keys() for choice in choices)):
            return chunk
        if not choices:
            return None
        kept = [self._rest(choice) for choice in choices]
        return self._rest(chunk) | {"choices": kept}

    def _rest(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in fields.items() if key not in self.keys}


def with_extras(
    body: Mapping[str, Any], model: str, tokens: Mapping[str, Any] | None
) -> tuple[Asked, Extras]:
    """Return what to send upstream for a rollout's request, and what to take out of the answer.

    Args:
        body: The rollout's request.
        model: The real model.
        tokens: The parameters that make the engine send token ids, or None to want none.
    """
    added: dict[str, Any] = {}
    keys: set[str] = set()
    options = as_object(body.get("stream_options"))
    if body.get("stream") is True and not options.get("include_usage"):
        added["stream_options"] = {**options, "include_usage": True}
        keys.add("usage")
    if tokens is not None:
        keys |= _ask_for_tokens(body, added, tokens)
    return Asked({**body, "model": model}, added), Extras(frozenset(keys))


def _ask_for_tokens(
    body: Mapping[str, Any], added: dict[str, Any], tokens: Mapping[str, Any]
) -> set[str]:
    keys: set[str] = set()
    asked: set[str] = set()
    for name, value in (*tokens.items(), ("logprobs", True)):
        answers = _ANSWERS.get(name, frozenset({name}))
        if body.get(name):
            asked |= answers
        else:
            added[name] = value
            keys |= answers
    return keys - asked
