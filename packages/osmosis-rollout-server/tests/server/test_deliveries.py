"""Deliveries to a peer that fails: what is tried again, with what, and what is given up."""

import asyncio
import gc
import itertools
import json
import logging
import random
from typing import Any

import aiohttp
import httpx
import pytest

from osmosis_ai.rollout import ExecutionOutcome, ExecutionRequest, ExecutionResult, RolloutStatus
from osmosis_ai.rollout.server import (
    _outbox,  # pyright: ignore[reportPrivateUsage]
    _posting,  # pyright: ignore[reportPrivateUsage]
    _service,  # pyright: ignore[reportPrivateUsage]
    create_rollout_server,
)

from .harness import BODY, Client, HeldBackend, ScriptedBackend, serving, succeeded
from .peer import (
    Behaviour,
    Call,
    Peer,
    answer,
    half_a_body,
    half_a_head,
    hang,
    in_turn,
    no_http,
    peer,
    reset,
)

ANSWER = {"role": "assistant", "content": "4"}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let deliveries fail in a fraction of the time that they have."""
    monkeypatch.setattr(_posting, "ATTEMPT_SEC", 0.4)
    monkeypatch.setattr(_outbox, "_FIRST_WAIT_SEC", 0.02)
    monkeypatch.setattr(_service, "DELIVERY_SEC", 0.5)


def graded(*messages: dict[str, Any], **sample: Any) -> ScriptedBackend:
    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        return succeeded(*(messages or (ANSWER,)), **{"reward": 1.0, **sample})

    return ScriptedBackend(execute)


async def until_ended(client: Client, rollout_id: str = "r-1") -> None:
    """Wait until a rollout of an app that retains nothing has been delivered or given up."""
    await client.until(rollout_id, "unknown")


FAULTS: dict[str, Behaviour] = {
    "commits, then hangs": hang,
    "commits, then 502": answer(502),
    "resets after the body": reset,
    "half a head": half_a_head,
    "half a body": half_a_body,
    "no http": no_http,
    "429": answer(429),
    "500": answer(500),
    "503": answer(503, Retry_After="0"),
    "504": answer(504, Retry_After="soon"),
    "no date": answer(503, Retry_After="Mon, 01 Jan 99999999999999999999 00:00:00 GMT"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_b17_what_may_pass_is_tried_again_with_the_same_bytes_and_key(
    fault: Behaviour, quick: None
) -> None:
    app = create_rollout_server(backend=graded())
    async with peer(in_turn(fault, fault)) as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        await trainer.wait_for("graded", 3)
    for channel in ("done", "graded"):
        calls = trainer.to(channel)
        assert len(calls) == 3
        assert len({(call.key, call.raw) for call in calls}) == 1
    assert [call.channel for call in trainer.calls] == ["done"] * 3 + ["graded"] * 3


FINAL: dict[str, Behaviour] = {
    "307": answer(307, Location="/elsewhere"),
    "301": answer(301, Location="/elsewhere"),
    "400": answer(400),
    "401": answer(401),
    "404": answer(404),
    "408": answer(408),
    "409": answer(409),
    "501": answer(501),
}


@pytest.mark.parametrize(("name", "behaviour"), FINAL.items(), ids=FINAL)
async def test_b17_every_other_answer_is_final_and_logged_once(
    name: str, behaviour: Behaviour, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_rollout_server(backend=graded())
    async with peer(lambda _: behaviour) as trainer, serving(app) as client:
        fields = trainer.fields()
        await client.start("r-1", **fields)
        await trainer.wait_for("graded")
        polled = await client.result("r-1")
    assert [call.channel for call in trainer.calls] == ["done", "graded"]
    assert polled["sample"]["reward"] == 1.0
    for url in fields.values():
        lines = [line for line in caplog.messages if f"not delivered to {url} " in line]
        assert len(lines) == 1
        assert f"in 1 attempt(s): the answer was {name}" in lines[0]


@pytest.mark.parametrize(
    "behaviour",
    [
        answer(200, b"<html>thanks</html>", Content_Type="text/html"),
        answer(204),
        answer(201, b"[1, 2]"),
        answer(200, b'{"ok": NaN'),
        answer(200, b'{"trajectory": 5}'),
        answer(202, b"\xff\xfe"),
    ],
)
async def test_b17_any_2xx_counts(behaviour: Behaviour, caplog: pytest.LogCaptureFixture) -> None:
    app = create_rollout_server(backend=graded(), result_retention_sec=0)
    async with peer(lambda _: behaviour) as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        await until_ended(client)
    assert [call.channel for call in trainer.calls] == ["done", "graded"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_b16_five_attempts_at_growing_intervals_then_the_result_stays_pollable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The one test that waits as long as a trainer would see it."""

    def respond(call: Call) -> Behaviour:
        return answer(500) if call.channel == "done" else answer()

    # It is retained from the end of the deliveries on: no poll could come in time otherwise.
    app = create_rollout_server(backend=graded(), result_retention_sec=1)
    async with peer(respond) as trainer, serving(app) as client:
        url = trainer.fields()["completion_callback_url"]
        secret = url.replace("http://", "http://user:sek-ret@") + "?token=sek-ret"
        fields = trainer.fields(completion_callback_url=secret, controller_api_key="sek-ret")
        await client.start("r-1", **fields)
        graded_call = (await trainer.wait_for("graded"))[0]
        polled = await client.result("r-1")
        await client.until("r-1", "unknown")
    calls = [call for call in trainer.calls if call.channel == "done"]
    assert [call.path for call in calls] == ["/done/r-1?token=sek-ret"] * 5
    assert {call.headers["authorization"] for call in calls} == {"Bearer sek-ret"}
    times = [call.at for call in calls]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert all(gap >= wait for gap, wait in zip(gaps, (0.5, 1, 2, 4), strict=True))
    assert graded_call.at >= times[-1]
    assert graded_call.body["sample"]["reward"] == polled["sample"]["reward"] == 1.0
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("osmosis")]
    lines = [line for line in ours if "not delivered" in line]
    assert len(lines) == 1
    assert f"not delivered to {url} in 5 attempt(s): the answer was 500." in lines[0]
    assert "sek-ret" not in "".join(ours)


@pytest.mark.parametrize(
    ("attempts", "retry_after", "least", "most"),
    [
        (1, None, 0.5, 0.6),
        (2, None, 1, 1.2),
        (3, None, 2, 2.4),
        (4, None, 4, 4.8),
        (1, 0.0, 0.5, 0.6),
        (1, 3.0, 3, 3.6),
        (4, 1.0, 4, 4.8),
        (1, 3600.0, 8, 8),
        (1, float("inf"), 8, 8),
        (9, None, 8, 8),
    ],
)
def test_b17_the_peers_wish_is_honoured_within_the_cap(
    attempts: int, retry_after: float | None, least: float, most: float
) -> None:
    waits = [_outbox.wait_before_retry(attempts, retry_after) for _ in range(100)]
    assert all(least <= wait <= most for wait in waits)
    assert least == most or len(set(waits)) > 1


async def test_b17_retry_after_is_waited_for(quick: None) -> None:
    app = create_rollout_server(backend=graded())
    async with peer(in_turn(answer(429, Retry_After="1"))) as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        first, second = await trainer.wait_for("done", 2)
    assert second.at - first.at >= 1


async def test_b30_a_413_is_followed_by_a_smaller_body_that_says_what_is_missing() -> None:
    def respond(call: Call) -> Behaviour:
        return answer(413) if len(call.raw) > 3000 else answer()

    backend = graded({"role": "tool", "content": "x" * 5000}, metrics={"loss": 1}, label="4")
    async with peer(respond) as trainer, serving(create_rollout_server(backend=backend)) as client:
        await client.start("r-1", **trainer.fields())
        whole, reduced = await trainer.wait_for("graded", 2)
    assert whole.key != reduced.key
    assert whole.body["sample"]["metrics"] == {"loss": 1}
    assert reduced.body == {
        "status": "success",
        "rollout_id": "r-1",
        "sample": {"label": "4", "reward": 1.0, "remove_sample": False},
        "err_message": None,
        "err_category": None,
        "omitted": ["sample.messages", "sample.metrics", "sample.extra_fields"],
    }


async def test_b30_long_texts_are_cut_in_the_smaller_body() -> None:
    def respond(call: Call) -> Behaviour:
        return answer(413) if len(call.raw) > 3000 else answer()

    async def fail(request: ExecutionRequest) -> ExecutionOutcome:
        grader = ExecutionResult(status=RolloutStatus.FAILURE, err_message="x" * 5000)
        sample = succeeded(ANSWER, label="y" * 5000).workflow
        grader.sample = sample.sample
        return ExecutionOutcome(workflow=sample, grader=grader)

    async def crash(request: ExecutionRequest) -> ExecutionOutcome:
        raise OSError("x" * 5000)

    for script, count in ((fail, 1), (crash, 2)):
        app = create_rollout_server(backend=ScriptedBackend(script))
        async with peer(respond) as trainer, serving(app) as client:
            await client.start("r-1", **trainer.fields())
            _, reduced = await trainer.wait_for("graded", 2)
            assert len(trainer.to("done")) == count
        assert "err_message" in reduced.body["omitted"]
        assert reduced.body["err_message"].startswith("xxx")
    assert trainer.to("done")[1].body["omitted"] == ["err_message"]


async def test_b30_a_peer_that_refuses_even_the_smaller_body_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = create_rollout_server(backend=graded(), result_retention_sec=0)
    async with peer(lambda _: answer(413)) as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        await until_ended(client)
    # There is no smaller completion.
    assert [call.channel for call in trainer.calls] == ["done", "graded", "graded"]
    assert caplog.text.count("the answer was 413. The result can be polled") == 2


async def test_b30_40_megabytes_twice_to_a_peer_that_does_not_even_read_them() -> None:
    loop = asyncio.get_running_loop()
    strict = loop.get_exception_handler()
    if [int(part) for part in aiohttp.__version__.split(".")[:2]] < [3, 14]:
        # It forgets a future of the lost connection, and asyncio tells of that.
        loop.set_exception_handler(None)
    big = {"role": "tool", "content": "x" * 40_000_000}
    app = create_rollout_server(backend=graded(big, big))
    async with peer(largest_body=1_000_000) as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        body = (await trainer.wait_for("graded"))[0].body
    gc.collect()
    loop.set_exception_handler(strict)
    assert body["sample"]["reward"] == 1.0
    assert body["omitted"][0] == "sample.messages"
    assert trainer.refused >= 1


class Bomb(dict[str, Any]):
    """A value that ends whoever looks into it."""

    def items(self) -> Any:
        raise SystemExit

    def __iter__(self) -> Any:
        raise SystemExit


async def test_b22_a_sample_that_cannot_be_encoded_still_has_its_reward() -> None:
    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        outcome = succeeded(ANSWER, label="4", reward=1.0)
        assert outcome.workflow.sample is not None
        outcome.workflow.sample.metrics["bomb"] = Bomb(a=1)
        return outcome

    app = create_rollout_server(backend=ScriptedBackend(execute))
    async with peer() as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        _, body = await trainer.bodies()
        polled = await client.result("r-1")
    for told in (body, polled):
        assert told["status"] == "success"
        assert told["sample"] == {"label": "4", "reward": 1.0, "remove_sample": False}
        assert told["omitted"] == ["sample.messages", "sample.metrics", "sample.extra_fields"]
    assert [call.channel for call in trainer.calls] == ["done", "graded"]


async def test_b22_b23_only_the_bad_leaves_are_replaced() -> None:
    recursive: dict[str, Any] = {"fine": 1}
    recursive["self"] = recursive
    message = {"role": "tool", "content": "a\ud83d\udcb2\x00\ufffe", "n": float("nan")}
    metrics = {"loss": float("nan"), "kept": 1, (1, 2): 3, "set": {1}, "raw": b"\xff"}

    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        outcome = succeeded(message, reward=1.0)
        assert outcome.workflow.sample is not None
        outcome.workflow.sample.metrics.update({**metrics, "deep": recursive})  # type: ignore[dict-item]
        return outcome

    app = create_rollout_server(backend=ScriptedBackend(execute))
    async with peer() as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        _, body = await trainer.bodies()
        polled = await client.result("r-1")
    assert body["sample"] == polled["sample"]
    assert body["sample"]["reward"] == 1.0
    assert body["sample"]["metrics"]["kept"] == 1
    assert "loss" not in body["sample"]["metrics"]
    assert body["sample"]["messages"][0]["role"] == "tool"
    assert body["sample"]["messages"][0]["content"].startswith("a")


async def test_b23_errors_with_lone_surrogates_arrive() -> None:
    async def fail(request: ExecutionRequest) -> ExecutionOutcome:
        msg = "bad \udcb2 name"
        raise OSError(msg)

    app = create_rollout_server(backend=ScriptedBackend(fail))
    async with peer() as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields())
        completion, body = await trainer.bodies()
    assert completion["err_message"] == body["err_message"]
    assert completion["err_message"].startswith("bad ")


@pytest.mark.parametrize("key", [None, ""])
async def test_b26_without_a_key_there_is_no_authorization(key: str | None) -> None:
    app = create_rollout_server(backend=graded())
    async with peer() as trainer, serving(app) as client:
        await client.start("r-1", **trainer.fields(controller_api_key=key))
        await trainer.bodies()
    assert not [call for call in trainer.calls if "authorization" in call.headers]


async def test_a_user_in_the_url_is_sent_when_there_is_no_key() -> None:
    app = create_rollout_server(backend=graded())
    async with peer() as trainer, serving(app) as client:
        fields = trainer.fields()
        urls = {name: url.replace("//", "//user:p%40ss@") for name, url in fields.items()}
        await client.start("r-1", **urls)
        await trainer.bodies()
    assert {call.headers["authorization"] for call in trainer.calls} == {"Basic dXNlcjpwQHNz"}


async def test_b27_loopback_bypasses_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "localhost")
    async with (
        peer() as trainer,
        serving(create_rollout_server(backend=graded())) as client,
    ):
        await client.start("r-1", **trainer.fields())
        await trainer.bodies()


async def deliver_behind(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a rollout whose callback goes through a proxy, to the end of its delivery."""
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    app = create_rollout_server(backend=graded(), result_retention_sec=0)
    async with serving(app) as client:
        await client.start("r-1", grader_callback_url="http://trainer.example/graded")
        await until_ended(client)


async def test_b27_a_failure_names_the_proxy_without_its_password(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, quick: None
) -> None:
    await deliver_behind("http://user:sek-ret@127.0.0.1:9", monkeypatch)
    lines = [line for line in caplog.messages if "not delivered" in line]
    assert len(lines) == 1
    assert "in 5 attempt(s)" in lines[0]
    assert "through the environment's proxy http://127.0.0.1:9." in lines[0]
    assert "sek-ret" not in caplog.text


async def test_b27_a_proxy_that_is_no_url_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await deliver_behind("http://user:sek-ret@h\u2100st", monkeypatch)
    assert "in 1 attempt(s): the environment names a proxy" in caplog.text
    assert "sek-ret" not in caplog.text


async def test_a_url_that_cannot_be_called_is_given_up_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = create_rollout_server(backend=graded(), result_retention_sec=0)
    async with serving(app) as client:
        await client.start("r-1", grader_callback_url=f"http://a..b.example/{'x' * 70_000}")
        await until_ended(client)
    assert "in 1 attempt(s): the request cannot be sent" in caplog.text


async def test_b20_nothing_is_lost_to_the_garbage_collector() -> None:
    backend = HeldBackend()
    async with peer() as trainer, serving(create_rollout_server(backend=backend)) as client:
        for number in range(200):
            await client.start(f"r-{number}", **trainer.fields(f"r-{number}"))
        collecting = asyncio.create_task(collect())
        backend.release.set()
        for number in range(200):
            await trainer.wait_for("graded", 1, f"r-{number}")
        collecting.cancel()
    assert len(trainer.calls) == 400


async def collect() -> None:
    while True:
        gc.collect()
        await asyncio.sleep(0.01)


async def test_rollouts_with_callbacks_are_refused_while_the_outbox_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_outbox, "CAPACITY", 2)
    free = asyncio.Event()

    async def wait(writer: asyncio.StreamWriter) -> None:
        await free.wait()
        await answer()(writer)

    app = create_rollout_server(backend=graded())
    async with peer(lambda _: wait) as trainer, serving(app) as client:
        for number in range(2):
            await client.start(f"r-{number}", **trainer.fields(f"r-{number}"))
            await trainer.wait_for("done", 1, f"r-{number}")
        refused = await client.post("r-2", **trainer.fields("r-2"))
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        await client.start("r-3")  # who polls waits for nobody
        free.set()
        while (await client.post("r-2", **trainer.fields("r-2"))).status_code == 429:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_dead_peer_holds_up_nobody_else(
    monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    monkeypatch.setattr(_outbox, "WORKERS", 1)
    monkeypatch.setattr(_outbox, "_FIRST_WAIT_SEC", 30)
    app = create_rollout_server(backend=graded())
    async with (
        peer(lambda _: answer(503)) as dead,
        peer() as alive,
        serving(app) as client,
    ):
        await client.start("r-1", **dead.fields())
        await dead.wait_for("done")
        await client.start("r-2", **alive.fields("r-2"))
        await alive.bodies("r-2")


def consistent(trainer: Peer, rollout_id: str) -> bool:
    """Tell whether what the peer saw of a rollout is one story."""
    done, graded_ = trainer.to("done", rollout_id), trainer.to("graded", rollout_id)
    one = all(len({(call.key, call.raw) for call in calls}) == 1 for calls in (done, graded_))
    completion, grading = done[0].body, graded_[0].body
    same = completion["status"] == grading["status"]
    rewarded = grading["sample"] is not None and grading["sample"]["reward"] == 1.0
    return one and same and rewarded == (grading["status"] == "success")


async def test_b16_b17_a_peer_that_fails_at_random_gets_everything(quick: None) -> None:
    chance = random.Random(7)
    faults: list[Behaviour] = [
        reset,
        hang,
        half_a_body,
        half_a_head,
        answer(500),
        answer(429, Retry_After="0"),
    ]

    def respond(call: Call) -> Behaviour:
        if call.attempt <= 3 and chance.random() < 0.2:
            return chance.choice(faults)
        arrived[call.path] = arrived.get(call.path, 0) + 1
        return answer()

    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        if int(request.id[2:]) % 3 == 0:
            raise OSError
        return succeeded(ANSWER, reward=1.0)

    arrived: dict[str, int] = {}
    app = create_rollout_server(backend=ScriptedBackend(execute))
    async with peer(respond) as trainer, serving(app) as client:
        for number in range(300):
            await client.start(f"r-{number}", **trainer.fields(f"r-{number}"))
        for number in range(300):
            while f"/graded/r-{number}" not in arrived:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert len(arrived) == 600
    assert set(arrived.values()) == {1}
    assert all(consistent(trainer, f"r-{number}") for number in range(300))


async def test_at_shutdown_each_channel_gets_its_post_and_what_cannot_be_sent_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_service, "DRAIN_SEC", 0.2)
    monkeypatch.setattr(_service, "DELIVERY_SEC", 1.0)

    def respond(call: Call) -> Behaviour:
        return hang if call.path.endswith("r-2") else answer()

    async with peer(respond) as trainer:
        async with serving(create_rollout_server(backend=HeldBackend()), tidy=False) as client:
            await client.start("r-1", **trainer.fields())
            await client.start("r-2", **trainer.fields("r-2"))
        completion, grading = await trainer.bodies()
    assert (completion["status"], grading["status"]) == ("cancelled", "failure")
    for body in (completion, grading):
        assert body["err_message"] == "the rollout server shut down"
        assert (body["origin"], body["retryable"]) == ("infrastructure", True)
    lines = [line for line in caplog.messages if "was not delivered" in line]
    assert len(lines) == 2
    assert "in 1 attempt(s): the attempt was cut short" in lines[0]
    assert "in 0 attempt(s): there was no time" in lines[1]


async def test_a_repeated_post_does_not_call_back_twice() -> None:
    app = create_rollout_server(backend=graded())
    async with peer() as trainer, serving(app) as client:
        body = json.dumps({**BODY, "rollout_id": "r-1", **trainer.fields()})
        headers = {"Idempotency-Key": "k-1"}
        answers: list[httpx.Response] = [
            await client.http.post("/rollout", content=body, headers=headers) for _ in range(2)
        ]
        assert (await client.post("r-1", **trainer.fields())).status_code == 409
        await trainer.bodies()
    assert answers[0].json() == answers[1].json()
    assert [call.channel for call in trainer.calls] == ["done", "graded"]
