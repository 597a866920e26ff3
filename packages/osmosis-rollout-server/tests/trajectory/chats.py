"""Chat histories for tests: all the roles, the odd shapes that people use, and worse."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

from osmosis_ai.rollout import RolloutSample
from osmosis_ai.rollout.trajectory import Trajectory, convert_sample_to_trajectory

ODD_TEXTS = ["", "a\ud83d", "\udcb2", "\x00", "\ufffe", "\ud83d\ude00", "line\nline", '{"a": 1}']

texts = st.text(max_size=20) | st.sampled_from(ODD_TEXTS)
odd_ints = st.integers() | st.sampled_from([2**63, 2**64, -(2**63) - 1, 10**400])
scalars = (
    st.none() | st.booleans() | odd_ints | st.floats() | texts | st.binary(max_size=5) | st.dates()
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(texts | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=3)


def nested(depth: int) -> Any:
    """Return lists and objects inside each other."""
    value: Any = "leaf"
    for level in range(depth):
        value = [value] if level % 2 else {"inner": value}
    return value


# Deeper than documents go, than orjson goes, and near what Python's own recursion allows.
deep = st.sampled_from([60, 110, 300]).map(nested)
huge = st.builds(
    str.__mul__, st.sampled_from(["a", "\ud83d", "é{"]), st.sampled_from([5000, 70_000])
)

ids = st.sampled_from(["call_0", "call_1", "x", "", 5, None])
arguments = (
    objects
    | values
    | st.sampled_from(['{"a": 1}', "[1]", "null", "", "NaN", '{"a":1}{"b":2}', '{"n": 1e999}'])
    | st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3).map(json.dumps)
)
functions = st.fixed_dictionaries({}, optional={"name": texts | values, "arguments": arguments})
tool_calls = st.fixed_dictionaries(
    {},
    optional={
        "id": ids,
        "type": st.sampled_from(["function", "custom", "other"]),
        "function": functions | values,
        "custom": functions,
        "name": texts,
        "index": st.integers(),
    },
)
parts = (
    st.fixed_dictionaries({"type": st.just("text"), "text": texts}, optional={"cache": texts})
    | st.fixed_dictionaries({"text": texts | values})
    | st.fixed_dictionaries({"type": st.just("output_text"), "text": texts, "annotations": values})
    | st.fixed_dictionaries({"type": st.just("refusal"), "refusal": texts})
    | st.just({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}})
    | st.just({"type": "image_url", "image_url": {"url": "https://example.com/a"}})
    | values
)
contents = texts | st.lists(parts, max_size=4) | values | deep | huge
usages = st.dictionaries(
    st.sampled_from(
        ["prompt_tokens", "input_tokens", "outputTokens", "cost", "prompt_tokens_details", "other"]
    ),
    values | st.integers(min_value=0) | st.just({"cached_tokens": 0}),
)
logprobs = (
    st.lists(st.floats() | st.none(), max_size=4)
    | st.just({"content": [{"token": "a", "logprob": -0.5}]})
    | values
)
message_fields: dict[str, st.SearchStrategy[Any]] = {
    "role": st.sampled_from(["system", "developer", "user", "tool", "function", "critic", 5])
    | st.just("assistant"),
    "content": contents,
    "name": texts,
    "refusal": texts | st.none(),
    "reasoning_content": texts | values,
    "reasoning": texts | values,
    "tool_calls": st.lists(tool_calls | values, max_size=3) | values,
    "function_call": functions | values,
    "tool_call_id": ids | values,
    "model": texts | values,
    "model_name": texts,
    "usage": usages | values,
    "created_at": st.floats() | st.integers() | texts,
    "timestamp": st.datetimes().map(str) | values,
    "created": st.integers(),
    "token_ids": st.lists(odd_ints, max_size=3) | values,
    "prompt_token_ids": st.lists(st.integers(0, 10**6), max_size=3),
    "logprobs": logprobs,
    "metadata": st.fixed_dictionaries({"usage": usages}) | values,
    "extra": objects
    | st.fixed_dictionaries({"response": st.fixed_dictionaries({"usage": usages})}),
    "annotations": deep | huge | values,
    "agent_name": texts,
}
inner_messages = st.lists(st.fixed_dictionaries({}, optional=message_fields), max_size=2)
subagents = st.fixed_dictionaries({"messages": inner_messages}, optional={"agent_name": texts})
messages: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {}, optional={**message_fields, "subagents": st.lists(subagents, max_size=2) | values}
)
histories = st.lists(messages, min_size=1, max_size=8)


figures = st.none() | odd_ints | st.floats() | st.just(1e308)
call_reports = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": st.integers(0, 99) | figures,
        "completion_tokens": st.integers(0, 99) | figures,
        "cost_usd": st.floats(0, 1) | figures,
        "prompt_token_ids": st.lists(odd_ints, max_size=3),
        "logprobs": st.lists(st.floats() | st.none(), max_size=3),
        "model_name": texts,
        "extra": objects,
    },
)
sample_reports = st.fixed_dictionaries(
    {},
    optional={
        "model_name": texts,
        "llm_call_metrics": st.lists(call_reports, max_size=3),
        "final_metrics": st.dictionaries(
            st.sampled_from(["total_prompt_tokens", "total_cost_usd", "total_steps", "extra", "x"]),
            st.integers(0, 99) | values,
        )
        | values,
    },
)
report_answers = st.fixed_dictionaries(
    {
        "trajectory": st.fixed_dictionaries(
            {"samples": st.dictionaries(texts, sample_reports, max_size=2)},
            optional={"model_name": texts},
        )
    }
)


CHECKS: list[Callable[[Trajectory], object]] = []
"""What looks at every converted document besides the test; the tests with Harbor's models do."""


def convert(*history: Any, **options: Any) -> Trajectory:
    """Convert a history that has messages."""
    sample = RolloutSample(messages=[], trajectory_messages=list(history))
    trajectory = convert_sample_to_trajectory(sample, rollout_id="r-1", **options)
    assert trajectory is not None
    for check in CHECKS:
        check(trajectory)
    return trajectory


def text_leaves(value: Any) -> Iterator[str]:
    """Yield every text in a value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from text_leaves(key)
            yield from text_leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from text_leaves(item)
