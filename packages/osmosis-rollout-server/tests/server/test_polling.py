"""The polling protocol: leases, long polls, retention, statuses."""

import asyncio
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    AgentWorkflowOutput,
    ExecutionOutcome,
    ExecutionRequest,
    ExecutionResult,
    LocalBackend,
    RolloutStatus,
)
from osmosis_ai.rollout.backend import report_status
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.server._lease import Lease, LeaseTimers
from osmosis_ai.rollout.server._settings import DEFAULT_BODY_LIMIT, Settings
from osmosis_ai.rollout.types import POLLING_LEASE_HEADER

from .harness import Client, HeldBackend, ScriptedBackend, serving, succeeded


class Steps(ScriptedBackend):
    """Goes through the statuses at the test's command."""

    def __init__(self) -> None:
        super().__init__(self._run)
        self.go = {status: asyncio.Event() for status in ("running", "grading", "success")}

    async def _run(self, request: ExecutionRequest) -> ExecutionOutcome:
        report_status(RolloutStatus.QUEUED)
        await self.go["running"].wait()
        report_status(RolloutStatus.RUNNING)
        await self.go["grading"].wait()
        report_status(RolloutStatus.GRADING, ExecutionResult(status=RolloutStatus.SUCCESS))
        await self.go["success"].wait()
        return succeeded(reward=0.5)


async def test_a_poll_answers_when_the_status_is_news() -> None:
    backend = Steps()
    async with serving(create_rollout_server(backend=backend)) as client:
        await client.start("r-1")
        answer: dict[str, Any] = {}
        for status, go in backend.go.items():
            poll = asyncio.create_task(client.poll("r-1"))
            await asyncio.sleep(0.05)
            assert not poll.done()
            go.set()
            answer = (await poll).json()
            assert answer["status"] == status
            if status != "success":
                assert answer == {"rollout_id": "r-1", "status": status}
        assert answer["sample"]["reward"] == 0.5
        again = await client.poll("r-1")
        assert again.json() == answer


async def test_progress_and_end_in_close_succession_are_one_answer() -> None:
    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        report_status(RolloutStatus.RUNNING)
        await asyncio.sleep(0.01)
        report_status(RolloutStatus.GRADING, ExecutionResult(status=RolloutStatus.SUCCESS))
        return succeeded(reward=0.5)

    async with serving(create_rollout_server(backend=ScriptedBackend(execute))) as client:
        for number in range(20):
            await client.start(f"r-{number}")
        answers = [(await client.poll(f"r-{number}")).json() for number in range(20)]
    assert {answer["status"] for answer in answers} == {"success"}


async def test_a_poll_tells_a_change_that_came_between_two_polls() -> None:
    backend = Steps()
    backend.go["running"].set()
    async with serving(create_rollout_server(backend=backend)) as client:
        await client.start("r-1")
        assert (await client.poll("r-1")).json()["status"] == "running"
        backend.go["grading"].set()
        await client.until("r-1", "grading")
        assert (await client.poll("r-1")).json()["status"] == "grading"


async def test_a_poll_without_news_answers_after_the_wait() -> None:
    app = create_rollout_server(backend=Steps(), result_wait_timeout_sec=0.2)
    async with serving(app) as client:
        await client.start("r-1")
        answers = [(await client.poll("r-1")).json() for _ in range(2)]
    assert answers == [{"rollout_id": "r-1", "status": "queued"}] * 2


async def test_two_pollers_at_once_get_the_same_news() -> None:
    backend = Steps()
    async with serving(create_rollout_server(backend=backend)) as client:
        await client.start("r-1")
        polls = [asyncio.create_task(client.poll("r-1")) for _ in range(2)]
        await asyncio.sleep(0.1)
        backend.go["running"].set()
        answers = [(await poll).json()["status"] for poll in polls]
    assert answers == ["running", "running"]


async def test_who_was_told_and_polls_again_is_not_answered_for_the_other_pollers_sake() -> None:
    settings = Settings(
        result_wait_timeout_sec=60,
        polling_lease_timeout_sec=60,
        result_retention_sec=60,
        max_body_bytes=DEFAULT_BODY_LIMIT,
    )
    lease = Lease(60, LeaseTimers(settings), lambda: None)
    left, other = (asyncio.create_task(lease.wait(is_news=False)) for _ in range(2))
    await asyncio.sleep(0)
    lease.follow(RolloutStatus.RUNNING)
    left.cancel()
    lease.told = RolloutStatus.RUNNING
    again = asyncio.create_task(lease.wait(is_news=False))
    await other
    await asyncio.sleep(0.2)
    assert not again.done()
    lease.follow(RolloutStatus.GRADING)
    lease.follow(RolloutStatus.GRADING)
    await again
    assert left.cancelled()


async def test_polls_are_refused_for_unknown_ids_and_wrong_tokens() -> None:
    async with serving(create_rollout_server(backend=Steps())) as client:
        await client.start("r-1")
        await client.start("r-2")
        unknown = await client.poll("r-3", "token")
        wrong = await client.poll("r-1", client.leases["r-2"])
        headers = {POLLING_LEASE_HEADER.encode(): b"\xff"}
        odd = await client.http.get("/rollout/r-1/result", headers=headers)
        missing = await client.http.get("/rollout/r-1/result")
    assert [unknown.status_code, wrong.status_code, odd.status_code] == [404, 403, 403]
    assert missing.status_code == 422
    assert missing.json()["detail"][0]["loc"] == ["header", POLLING_LEASE_HEADER]


async def test_an_expired_lease_fails_the_rollout_and_stops_its_work() -> None:
    backend = HeldBackend()
    app = create_rollout_server(backend=backend, polling_lease_timeout_sec=0.2)
    async with serving(app) as client:
        await client.start("r-1")
        await client.until("r-1", "failure")
        assert backend.running == set()
        answer = (await client.poll("r-1")).json()
        assert answer["err_category"] == "lease_expired"
        assert "0.2 s" in answer["err_message"]
        assert "sample" not in answer
        assert (await client.status("r-1"))["err_message"] == answer["err_message"]


async def test_polls_keep_a_rollout_alive_and_a_wrong_token_does_not() -> None:
    backend = HeldBackend()
    app = create_rollout_server(
        backend=backend, polling_lease_timeout_sec=1.0, result_wait_timeout_sec=0.1
    )
    async with serving(app) as client:
        await client.start("kept")
        await client.start("lost")
        while "lost" in backend.running:
            assert (await client.poll("kept")).json()["status"] == "queued"
            assert (await client.poll("lost", "wrong")).status_code == 403
        assert backend.running == {"kept"}
        assert (await client.status("lost"))["status"] == "failure"


async def test_an_open_poll_holds_the_lease() -> None:
    backend = HeldBackend()
    app = create_rollout_server(
        backend=backend, polling_lease_timeout_sec=0.2, result_wait_timeout_sec=1.0
    )
    async with serving(app) as client:
        await client.start("r-1")
        assert (await client.poll("r-1")).json()["status"] == "queued"


@pytest.mark.parametrize("first", ["poll", "expiry"])
async def test_a_poll_in_the_moment_of_the_expiry(first: str) -> None:
    """Whichever comes first counts, and the poll tells which: nothing is lost in between."""
    loop = asyncio.get_running_loop()
    backend = HeldBackend()
    app = create_rollout_server(backend=backend, polling_lease_timeout_sec=1.0)
    transport = httpx.ASGITransport(app)  # on this loop, whose steps the test can order
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as http:
        client = Client(http)
        await client.start("r-1")
        polls: list[asyncio.Task[httpx.Response]] = []

        def poll() -> None:
            polls.append(loop.create_task(client.poll("r-1")))

        if first == "poll":
            poll()
        else:
            loop.call_at(loop.time() + 1.05, poll)  # later than the lease's, in the same step
        time.sleep(1.2)  # noqa: ASYNC251 - both are due when the loop goes on
        await asyncio.sleep(0.1)
        backend.release.set()
        answer = (await polls[0]).json()
        status = await client.status("r-1")
    if first == "poll":
        assert (answer["status"], answer["sample"]["reward"]) == ("success", 1.0)
    else:
        assert (answer["status"], answer["err_category"]) == ("failure", "lease_expired")
    assert status["status"] == answer["status"]


async def test_a_lease_that_expires_while_grading_ends_in_failure_for_good() -> None:
    """B18: a late result of an expired rollout is dropped."""

    async def stubborn(request: ExecutionRequest) -> ExecutionOutcome:
        graded = succeeded({"role": "user", "content": "x"}, reward=1.0)
        report_status(RolloutStatus.GRADING, graded.workflow)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            report_status(RolloutStatus.RUNNING)
        return graded

    app = create_rollout_server(
        backend=ScriptedBackend(stubborn), polling_lease_timeout_sec=0.2, result_retention_sec=60
    )
    async with serving(app) as client:
        await client.start("r-1")
        await client.until("r-1", "failure")
        await asyncio.sleep(0.1)
        answer = (await client.poll("r-1")).json()
    assert answer["status"] == "failure"
    assert answer["err_category"] == "lease_expired"
    assert "sample" not in answer


async def test_a_result_is_forgotten_after_its_retention_and_the_id_is_free(
    artifact_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = ScriptedBackend(lambda request: _answer(request))

    async def _answer(request: ExecutionRequest) -> ExecutionOutcome:
        return succeeded({"role": "user", "content": request.label or ""})

    app = create_rollout_server(backend=backend, result_retention_sec=0.3)
    async with serving(app) as client:
        client.http.headers["Idempotency-Key"] = "k-1"  # which is free again, too
        await client.start("r-1", label="first")
        await client.result("r-1")
        await client.until("r-1", "unknown")
        assert (await client.poll("r-1")).status_code == 404
        await client.start("r-1", label="second")
        await client.result("r-1")
    new = json.loads((artifact_root / "r-1" / "trajectory.json").read_bytes())
    old = json.loads((artifact_root / "r-1" / "previous-1" / "trajectory.json").read_bytes())
    assert old["steps"][0]["message"] == "first"
    assert new["steps"][0]["message"] == "second"
    assert any("previous-1" in record.getMessage() for record in caplog.records)


async def test_b18_an_id_stays_taken_while_its_task_unwinds() -> None:
    unwound = asyncio.Event()

    async def stubborn(request: ExecutionRequest) -> ExecutionOutcome:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await unwound.wait()
        return succeeded()

    app = create_rollout_server(backend=ScriptedBackend(stubborn), result_retention_sec=0)
    async with serving(app) as client:
        await client.start("r-1")
        await client.http.post("/rollout/cancel", json={"ids": ["r-1"]})
        await asyncio.sleep(0.1)
        assert (await client.post("r-1")).status_code == 409
        assert (await client.status("r-1"))["status"] == "cancelled"
        unwound.set()
        await client.until("r-1", "unknown")
        assert (await client.post("r-1")).status_code == 202


class Stubborn(AgentWorkflow[AgentWorkflowConfig]):
    """Ignores its cancellation until it may end."""

    may_end: asyncio.Event
    began: asyncio.Event

    async def run(self, ctx: AgentWorkflowContext[AgentWorkflowConfig]) -> AgentWorkflowOutput:
        self.began.set()
        while not self.may_end.is_set():
            with suppress(asyncio.CancelledError):
                await self.may_end.wait()
        return AgentWorkflowOutput(messages=[])


async def test_b18_an_id_stays_taken_while_its_code_runs_on_in_the_backend() -> None:
    """Its rollout has ended and is forgotten, but a new one would share its folder."""
    Stubborn.may_end, Stubborn.began = asyncio.Event(), asyncio.Event()
    backend = LocalBackend(workflow=Stubborn)
    async with serving(create_rollout_server(backend=backend, result_retention_sec=0)) as client:
        await client.start("r-1")
        await Stubborn.began.wait()
        await client.http.post("/rollout/cancel", json={"all": True})
        while (await client.status("r-1"))["status"] != "unknown":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert (await client.post("r-1")).status_code == 409
        Stubborn.may_end.set()
        while (answer := await client.post("r-1")).status_code == 409:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert answer.status_code == 202
        assert (await client.poll("r-1")).json()["status"] == "success"


async def test_two_apps_on_one_backend_do_not_share_an_id() -> None:
    backend = LocalBackend(workflow=Stubborn)
    Stubborn.may_end, Stubborn.began = asyncio.Event(), asyncio.Event()
    async with (
        serving(create_rollout_server(backend=backend)) as one,
        serving(create_rollout_server(backend=backend)) as other,
    ):
        await one.start("r-1")
        assert (await other.post("r-1")).status_code == 409
        Stubborn.may_end.set()
        assert (await one.result("r-1"))["status"] == "success"
        assert (await other.post("r-1")).status_code == 202


async def test_the_status_of_every_phase_is_told() -> None:
    backend = Steps()
    async with serving(create_rollout_server(backend=backend)) as client:
        assert await client.status("r-1") == {
            "rollout_id": "r-1",
            "status": "unknown",
            "reward": None,
            "err_message": None,
        }
        await client.start("r-1")
        assert (await client.status("r-1"))["status"] == "queued"
        for status, go in backend.go.items():
            go.set()
            await client.until("r-1", status)
        assert (await client.status("r-1"))["reward"] == 0.5


class Silent(HeldBackend):
    """Never reports, but tells a status when it is asked."""

    def rollout_status(self, rollout_id: str, /) -> dict[str, str] | None:
        if rollout_id == "broken":
            raise RuntimeError
        return {"status": "running"} if rollout_id in self.running else None


async def test_a_backend_that_never_reports_is_asked() -> None:
    backend = Silent()
    app = create_rollout_server(backend=backend, result_wait_timeout_sec=0.1)
    async with serving(app) as client:
        await client.start("r-1")
        assert (await client.poll("r-1")).json()["status"] == "running"
        assert (await client.status("r-1"))["status"] == "running"
        await client.start("broken")
        assert (await client.status("broken"))["status"] == "queued"
        backend.release.set()
        assert (await client.result("r-1"))["status"] == "success"


async def test_a_report_from_a_thread_wakes_the_poll() -> None:
    async def execute(request: ExecutionRequest) -> ExecutionOutcome:
        await asyncio.to_thread(report_status, RolloutStatus.RUNNING)
        await asyncio.sleep(60)
        return succeeded()

    async with serving(create_rollout_server(backend=ScriptedBackend(execute))) as client:
        await client.start("r-1")
        assert (await client.poll("r-1")).json()["status"] == "running"


async def test_many_open_polls_are_answered_at_once() -> None:
    """Rollouts that finish in the same moment are all read."""
    backend = HeldBackend()
    async with serving(create_rollout_server(backend=backend)) as client:
        ids = [await client.start(f"r-{number}") for number in range(200)]
        polls = [asyncio.create_task(client.poll(rollout_id)) for rollout_id in ids]
        await asyncio.sleep(0.2)
        backend.release.set()
        answers = [(await poll).json() for poll in polls]
    assert {answer["status"] for answer in answers} == {"success"}
    assert [answer["rollout_id"] for answer in answers] == ids
