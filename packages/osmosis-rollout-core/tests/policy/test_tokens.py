"""Token ids and log probabilities, by the endpoints that give them."""

from typing import Any

import pytest

from osmosis_ai.rollout.testing import chunk, reply, stream_reply

USER = {"role": "user", "content": "2+2?"}
ENTRIES: list[dict[str, Any]] = [
    {"token": "4", "logprob": -0.1, "bytes": [52], "top_logprobs": [{"token": "5", "logprob": -3}]},
    {"token": "!", "logprob": -0.2, "bytes": [33], "top_logprobs": []},
    {"token": "", "logprob": -0.3, "bytes": [], "top_logprobs": []},
]


@pytest.mark.parametrize("one_chunk", [False, True])
async def test_vllm_and_openai_spellings_are_joined_over_the_chunks(
    serve: Any, one_chunk: bool
) -> None:
    """Prompt tokens come once, the answer's tokens and log probabilities with each chunk."""
    script = reply(
        ["4", "!"],
        prompt_token_ids=[1, 2, 3],
        token_ids=[7, 8, 9],
        logprobs=ENTRIES,
        one_chunk=one_chunk,
    )
    client, _ = serve(script)
    answered = await client.complete([USER])
    assert answered.prompt_token_ids == [1, 2, 3]
    assert answered.token_ids == [7, 8, 9]
    assert answered.logprobs == [-0.1, -0.2, -0.3]
    assert answered.extra["logprobs"] == {"content": ENTRIES}


@pytest.mark.parametrize("cumulative", [False, True])
async def test_sglangs_meta_info_is_read_in_both_its_ways(serve: Any, cumulative: bool) -> None:
    """Chunks that repeat the list so far are told from chunks that bring what is new."""
    tokens = [[-0.1, 7, "4"], [-0.2, 8, None], [-0.3, 7, None]]
    chunks: list[dict[str, Any]] = []
    for count in (1, 3):
        start = 0 if cumulative or count == 1 else 1
        step = chunk(content="x", finish_reason="stop" if count == 3 else None)
        step["choices"][0]["meta_info"] = {
            "completion_tokens": count,
            "output_token_logprobs": tokens[start:count],
        }
        step["choices"][0]["prompt_token_ids"] = [1, 2]
        chunks.append(step)
    client, _ = serve(stream_reply(*chunks))
    answered = await client.complete([USER])
    assert answered.prompt_token_ids == [1, 2]
    assert answered.token_ids == [7, 8, 7]
    assert answered.logprobs == [-0.1, -0.2, -0.3]


@pytest.mark.parametrize("named", [3, 2])
async def test_llama_cpps_log_probabilities_name_the_tokens(serve: Any, named: int) -> None:
    """Ids that are not there for every token are no ids of the answer."""
    entries = [entry | {"id": 7 + place} for place, entry in enumerate(ENTRIES[:named])]
    client, _ = serve(reply(["4", "!"], logprobs=[*entries, *ENTRIES[named:]]))
    answered = await client.complete([USER])
    assert answered.token_ids == ([7, 8, 9] if named == 3 else None)
    assert answered.logprobs == [-0.1, -0.2, -0.3]


async def test_prompt_tokens_may_come_without_a_choice(serve: Any) -> None:
    """A first chunk of its own may bring them."""
    client, _ = serve(
        stream_reply(
            {"choices": [], "prompt_token_ids": [1]}, chunk(content="4", finish_reason="stop")
        )
    )
    assert (await client.complete([USER])).prompt_token_ids == [1]


async def test_null_stays_absent(serve: Any) -> None:
    """Endpoints that always send the keys, as null, gave nothing."""
    step = chunk(content="4", finish_reason="stop")
    step["choices"][0] |= {"logprobs": None, "token_ids": None}
    client, _ = serve(stream_reply(step | {"prompt_token_ids": None, "usage": None}))
    answered = await client.complete([USER])
    assert (answered.prompt_token_ids, answered.token_ids, answered.logprobs) == (None,) * 3
    assert answered.usage is None
