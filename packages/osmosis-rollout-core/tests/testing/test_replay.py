"""The replay policy, asked as an agent with a calculator asks a model."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_ai.rollout.testing import RecordingError, ReplayPolicy

DUCKS = "How many eggs\u2028are left?"
RACE = "Who wins  the race?"

# What real files hold: marks whose expression does not evaluate, marks that are never closed,
# solutions that stop in the middle, and solutions without a single mark.
RECORDED = [
    {
        "question": DUCKS,
        "small": {"is_correct": True, "solution": "16 - 3 = <<16-3=13>>13.\nA: 13"},
        "big/1": {"solution": "<<x+56=86>>She has <<2*3=6>>6 of <<6+1.66=7.\nA: 7"},
    },
    {
        "question": RACE,
        "small": {"solution": "Nobody: 3/11 = <<3/11=0.2727272727"},
        "big/1": {"solution": "Steve.\nA: 1"},
        "source": "ignored",
    },
]

TOOLS = [
    {"type": "function", "function": {"name": "search"}},
    {"type": "function", "function": {"name": "calculator"}},
]

type Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "recorded.jsonl"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def policy(write: Write) -> Iterator[ReplayPolicy]:
    lines = [json.dumps(record, ensure_ascii=False) for record in RECORDED]
    with ReplayPolicy(write("\ufeff" + "\r\n\n".join(lines))) as running:
        yield running


def ask(
    policy: ReplayPolicy, model: str, messages: list[dict[str, Any]], tools: object = TOOLS
) -> httpx.Response:
    body = {"messages": messages, "tools": tools}
    url = f"{policy.url_for(model)}/chat/completions"
    return httpx.post(url, json=body, trust_env=False)


def answer(
    policy: ReplayPolicy, model: str, messages: list[dict[str, Any]], tools: object = TOOLS
) -> dict[str, Any]:
    response = ask(policy, model, messages, tools)
    assert response.status_code == 200
    message: dict[str, Any] = response.json()["choices"][0]["message"]
    return message


def user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def result(content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "call_0", "content": content}


def converse(policy: ReplayPolicy, model: str, question: str) -> list[tuple[str | None, str]]:
    """Run a whole conversation; return each turn's text and expression."""
    messages = [{"role": "system", "content": "Solve it."}, user(question)]
    turns: list[tuple[str | None, str]] = []
    while True:
        message = answer(policy, model, messages)
        calls = message.get("tool_calls", [])
        expressions = [json.loads(call["function"]["arguments"])["expression"] for call in calls]
        turns.append((message["content"], ", ".join(expressions)))
        if not calls:
            return turns
        assert [call["function"]["name"] for call in calls] == ["calculator"]
        messages += [message, result("error: it does not evaluate")]


def test_models_come_in_the_order_of_the_first_line(policy: ReplayPolicy) -> None:
    assert policy.models == ["small", "big/1"]


def test_each_computation_is_a_calculator_call(policy: ReplayPolicy) -> None:
    assert converse(policy, "small", DUCKS) == [("16 - 3 = ", "16-3"), ("13.\nA: 13", "")]


def test_the_replay_goes_on_after_errors_and_keeps_unclosed_marks(policy: ReplayPolicy) -> None:
    assert converse(policy, "big/1", DUCKS) == [
        (None, "x+56"),
        ("She has ", "2*3"),
        ("6 of <<6+1.66=7.\nA: 7", ""),
    ]


def test_a_solution_without_an_answer_line_is_replayed_as_it_is(policy: ReplayPolicy) -> None:
    assert converse(policy, "small", RACE) == [("Nobody: 3/11 = <<3/11=0.2727272727", "")]


def test_answers_stream_and_name_the_recorded_model(policy: ReplayPolicy) -> None:
    url = f"{policy.url_for('big/1')}/chat/completions"
    body = {"messages": [user(RACE)], "stream": True, "model": "osmosis-rollout"}
    response = httpx.post(url, json=body, trust_env=False)
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    events = [json.loads(line) for line in lines]
    assert {event["model"] for event in events} == {"big/1"}
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert text == "Steve.\nA: 1"


def test_the_question_may_lie_in_a_template_or_in_text_parts(policy: ReplayPolicy) -> None:
    around = f"Think first.\n\n{DUCKS}\n\nAnswer with a number."
    parts = [{"type": "text", "text": "Hello."}, {"type": "text", "text": RACE}]
    assert answer(policy, "small", [user(around)])["content"] == "16 - 3 = "
    assert answer(policy, "big/1", [user(parts)])["content"] == "Steve.\nA: 1"


def test_the_last_question_counts_and_only_results_after_it(policy: ReplayPolicy) -> None:
    """Worked examples before the question, and remarks after it, do not disturb."""
    messages = [user(DUCKS), result("13"), user(DUCKS), user("Take your time."), user(None)]
    assert answer(policy, "small", messages)["content"] == "16 - 3 = "
    assert answer(policy, "small", [*messages, result("13")])["content"] == "13.\nA: 13"


def test_results_beyond_the_last_call_repeat_the_end(policy: ReplayPolicy) -> None:
    messages = [user(DUCKS), *([result("13")] * 5)]
    assert answer(policy, "small", messages)["content"] == "13.\nA: 13"


@pytest.mark.parametrize("tools", [None, [], TOOLS[:1], "calculator", [{"function": None}]])
def test_without_a_calculator_the_whole_solution_comes_at_once(
    policy: ReplayPolicy, tools: object
) -> None:
    message = answer(policy, "small", [user(DUCKS)], tools)
    assert message == {"role": "assistant", "content": "16 - 3 = 13.\nA: 13"}


def test_an_unknown_question_is_a_404(policy: ReplayPolicy) -> None:
    response = ask(policy, "small", [user("What is love?"), {"role": "assistant"}])
    assert response.status_code == 404
    assert "none of the 2 recorded questions" in response.json()["error"]["message"]


def test_an_unknown_model_is_a_404_and_an_error_in_url_for(policy: ReplayPolicy) -> None:
    url = policy.url_for("small").replace("small", "medium")
    response = httpx.post(
        f"{url}/chat/completions", json={"messages": [user(DUCKS)]}, trust_env=False
    )
    assert response.status_code == 404
    assert "small, big/1" in response.json()["error"]["message"]
    with pytest.raises(ValueError, match="there are small, big/1"):
        policy.url_for("medium")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "holds no recorded solutions"),
        ('\n{"question": ', "line 2: it is not JSON"),
        (b'{"question": "\xff"}', "line 1: it is not JSON in UTF-8"),
        ("[" * 100_000, "line 1: it is not JSON"),
        ("[]", "line 1: it is not a JSON object"),
        ('{"m": {"solution": "A: 1"}}', "line 1: `question` is missing"),
        ('{"question": " ", "m": {"solution": "A: 1"}}', "line 1: `question` is missing, empty"),
        ('{"question": "q", "m": {}}', "line 1: no model's solution"),
        ('{"question": "q", "m": {"solution": 5}}', "line 1: the solution of m is not text"),
        (
            '{"question": "q", "m": {"solution": "1"}}\n{"question": "r", "n": {"solution": "1"}}',
            "line 2: the models are not those of the first line",
        ),
        (
            '{"question": "q", "m": {"solution": "1"}}\n{"question": "q", "m": {"solution": "2"}}',
            "line 2: its question was recorded in an earlier line",
        ),
    ],
)
def test_a_malformed_file_is_refused_by_name_and_line(
    write: Write, content: str | bytes, problem: str
) -> None:
    path = write(content)
    with pytest.raises(RecordingError, match=problem) as caught, ReplayPolicy(path):
        pass
    assert str(path) in str(caught.value)


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), ReplayPolicy(tmp_path / "none.jsonl"):
        pass


def test_an_answer_says_when_it_was_given(policy: ReplayPolicy) -> None:
    """Archives take it for the turn's time, and a made-up day would be invented data."""
    before = int(time.time())
    answer = ask(policy, "small", [{"role": "user", "content": RACE}])
    assert before <= answer.json()["created"] <= time.time()
