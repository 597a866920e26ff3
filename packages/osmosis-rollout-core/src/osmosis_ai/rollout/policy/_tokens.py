"""Token ids and log probabilities, in the spellings of vLLM, SGLang, llama.cpp and OpenAI."""

from typing import Any, Final

from osmosis_ai.rollout.policy._values import as_array, as_object

TOKEN_KEYS: Final = frozenset({"logprobs", "meta_info", "prompt_token_ids", "token_ids"})
"""The keys of a choice that tell of tokens."""


class TokenRecord:
    """Collects the tokens of one reply over its chunks; what never came stays None.

    - vLLM (`return_token_ids`): `prompt_token_ids` on the first chunk, `token_ids` on each choice.
    - SGLang (`return_meta_info`, `return_prompt_token_ids`): `prompt_token_ids` on the choice, and
      `meta_info.output_token_logprobs`, a list of `[logprob, token id, text]`.
    - OpenAI (`logprobs`): `logprobs.content`, a list of objects with `token` and `logprob`.
    - llama.cpp (`logprobs`): the same, with the token's `id` in each of them.
    """

    def __init__(self) -> None:
        self.prompt_token_ids: list[int] | None = None
        self.logprob_entries: dict[str, list[Any]] = {}
        self._token_ids: list[int] | None = None
        self._sglang: list[list[Any]] = []

    @property
    def token_ids(self) -> list[int] | None:
        """The answer's tokens."""
        if self._token_ids is None and self._sglang:
            return [entry[1] for entry in self._sglang]
        return self._token_ids if self._token_ids is not None else self._ids_of_logprobs()

    @property
    def logprobs(self) -> list[float] | None:
        """The log probability of each of the answer's tokens."""
        if entries := self.logprob_entries.get("content"):
            # What is no number stays too: leaving it out would shift the others.
            values: list[Any] = [as_object(entry).get("logprob") for entry in entries]
            return values
        return [entry[0] for entry in self._sglang] or None

    def add(self, chunk: dict[str, Any], choice: dict[str, Any]) -> None:
        """Take what one chunk says of the tokens of its choice."""
        if TOKEN_KEYS.isdisjoint(choice) and "prompt_token_ids" not in chunk:
            return
        meta = as_object(choice.get("meta_info"))
        for holder in (chunk, choice, meta):
            self.prompt_token_ids = self.prompt_token_ids or holder.get("prompt_token_ids")
        if isinstance(choice.get("token_ids"), list):
            self._token_ids = self._token_ids or []
            self._token_ids.extend(choice["token_ids"])
        for kind, entries in as_object(choice.get("logprobs")).items():
            if more := as_array(entries):
                self.logprob_entries.setdefault(kind, []).extend(more)
        self._add_sglang(meta)

    def _ids_of_logprobs(self) -> list[int] | None:
        ids: list[Any] = [as_object(e).get("id") for e in self.logprob_entries.get("content", [])]
        return ids if ids and all(isinstance(id_, int) for id_ in ids) else None

    def _add_sglang(self, meta: dict[str, Any]) -> None:
        entries = [e for e in as_array(meta.get("output_token_logprobs")) if len(as_array(e)) >= 2]
        # By its settings the server repeats the list so far in every chunk, or sends what is new.
        if len(entries) == meta.get("completion_tokens"):
            self._sglang = entries
        else:
            self._sglang.extend(entries)
