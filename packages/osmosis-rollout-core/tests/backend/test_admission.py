"""Slots, the line before them, ids, and several event loops."""

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from osmosis_ai.rollout import (
    AgentWorkflowContext,
    ExecutionOutcome,
    GraderContext,
    LocalBackend,
    RolloutStatus,
)
from osmosis_ai.rollout.backend import reporting_to

from .conftest import InstantLoop, MakeBackend, MakeRequest

ANSWER = {"role": "assistant", "content": "4"}


def load(backend: LocalBackend) -> dict[str, Any]:
    """Return what health tells of rollouts."""
    concurrency: dict[str, Any] = backend.health()["concurrency"]
    return concurrency


@pytest.mark.parametrize("limit", [1, 2])
async def test_first_come_first_served(
    limit: int, make_backend: MakeBackend, make_request: MakeRequest
) -> None:
    """Never more than the limit run, and they get their slots in the order in which they came."""
    started: list[str] = []
    most = 0

    async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
        nonlocal most
        started.append((ctx.metadata or {})["name"])
        most = max(most, load(backend)["running"])
        await asyncio.sleep(0.01)
        return [ANSWER]

    backend = make_backend(run, limit=limit)
    names = [f"r-{number}" for number in range(9)]
    await asyncio.gather(
        *(backend.execute(make_request(name, metadata={"name": name})) for name in names)
    )
    # Who has a slot waits for a directory first, and that may take one longer than another.
    assert (started if limit == 1 else sorted(started)) == names
    assert most == limit
    assert load(backend) == {"max_concurrent": limit, "queued": 0, "running": 0}


@pytest.mark.parametrize("how", ["task", "backend"])
async def test_b03_cancelled_in_the_tick_in_which_a_slot_comes_free(
    how: str, make_backend: MakeBackend, make_request: MakeRequest
) -> None:
    """The slot that was on its way to a cancelled rollout goes to the next one in line."""
    release = asyncio.Event()
    reports: list[RolloutStatus] = []

    async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
        await release.wait()
        return [ANSWER]

    backend = make_backend(run, limit=1)

    def cancel(_: object) -> None:
        if how == "task":
            second.cancel()
        else:
            assert backend.cancel_rollouts(ids=["second"]) == {"second": "cancelled_queued"}

    first = asyncio.create_task(backend.execute(make_request("first")))
    await asyncio.sleep(0)
    first.add_done_callback(cancel)
    with reporting_to(lambda status, _: reports.append(status)):
        second = asyncio.create_task(backend.execute(make_request("second")))
    third = asyncio.create_task(backend.execute(make_request("third")))
    await asyncio.sleep(0)
    release.set()
    if how == "task":
        with pytest.raises(asyncio.CancelledError):
            await second
    else:
        assert (await second).result.status is RolloutStatus.CANCELLED
    assert (await third).result.status is RolloutStatus.SUCCESS
    assert reports == ["queued"]
    assert load(backend) == {"max_concurrent": 1, "queued": 0, "running": 0}


async def test_slot_covers_grading(make_backend: MakeBackend, make_request: MakeRequest) -> None:
    """A rollout that is being graded keeps its slot."""
    seen: list[Any] = []

    async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
        return [ANSWER]

    async def grade(ctx: GraderContext) -> None:
        await asyncio.sleep(0.01)
        seen.append((load(backend)["running"], load(backend)["queued"]))
        ctx.set_reward(1)

    backend = make_backend(run, grade, limit=1)
    await asyncio.gather(*(backend.execute(make_request(name)) for name in "abc"))
    assert seen == [(1, 2), (1, 1), (1, 0)]


async def test_grader_limit(make_backend: MakeBackend, make_request: MakeRequest) -> None:
    """Gradings have a limit of their own; the wait for it is not charged to the grader."""
    inside, most = 0, 0

    async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
        return [ANSWER]

    async def grade(ctx: GraderContext) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.3)
        inside -= 1
        ctx.set_reward(1)

    backend = make_backend(run, grade, grader_limit=1)
    outcomes = await asyncio.gather(
        *(backend.execute(make_request(name, grader_timeout_sec=0.8)) for name in "abcd")
    )
    assert most == 1
    assert [outcome.result.status for outcome in outcomes] == ["success"] * 4


@pytest.mark.parametrize(
    ("limit", "depth", "admitted"), [(1, 0, 1), (1, 2, 3), (2, 1, 3), (1, None, 9), (None, 0, 9)]
)
async def test_capacity(
    limit: int | None,
    depth: int | None,
    admitted: int,
    make_backend: MakeBackend,
    make_request: MakeRequest,
) -> None:
    """At most the limit and the depth together are unfinished; without either there is no end."""
    release = asyncio.Event()

    async def run(ctx: AgentWorkflowContext[Any]) -> None:
        await release.wait()

    backend = make_backend(run, limit=limit, depth=depth)
    tasks: list[asyncio.Task[ExecutionOutcome]] = []
    while backend.has_capacity() and len(tasks) < 9:
        tasks.append(asyncio.create_task(backend.execute(make_request(f"r-{len(tasks)}"))))
        await asyncio.sleep(0)
    assert len(tasks) == admitted
    release.set()
    await asyncio.gather(*tasks)
    assert backend.has_capacity()


async def test_duplicate_ids(make_backend: MakeBackend, make_request: MakeRequest) -> None:
    """An id cannot run twice at the same time; the first run is not disturbed."""
    release = asyncio.Event()

    async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
        await release.wait()
        return [ANSWER]

    backend = make_backend(run)
    first = asyncio.create_task(backend.execute(make_request()))
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="rollout id r-1 is in use"):
        await backend.execute(make_request())
    with pytest.raises(ValueError, match="rollout id r-1 is in use"):
        await backend.run_workflow(make_request())
    assert load(backend)["running"] == 1
    release.set()
    assert (await first).result.status is RolloutStatus.SUCCESS


def test_loops_one_after_the_other(make_backend: MakeBackend, make_request: MakeRequest) -> None:
    """A backend is not tied to the first loop that used it, not even by a shutdown."""

    async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
        await asyncio.sleep(0)
        return [ANSWER]

    backend = make_backend(run, limit=1)

    async def main() -> list[ExecutionOutcome]:
        outcomes = await asyncio.gather(*(backend.execute(make_request(name)) for name in "abc"))
        await backend.shutdown()
        return outcomes

    for _ in range(2):
        assert [outcome.result.status for outcome in asyncio.run(main())] == ["success"] * 3


def test_loops_side_by_side(make_backend: MakeBackend, make_request: MakeRequest) -> None:
    """Two loops have limits and ids of their own."""
    both_inside = threading.Barrier(2)

    async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
        await asyncio.to_thread(both_inside.wait, 20)
        return [ANSWER]

    backend = make_backend(run, limit=1)
    statuses: list[RolloutStatus] = []

    def serve() -> None:
        statuses.append(asyncio.run(backend.execute(make_request())).result.status)

    threads = [threading.Thread(target=serve) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == ["success", "success"]


BEHAVIOURS = st.sampled_from(["return", "raise", "sleep", "swallow", "exit", "cancel itself"])
BUDGETS = st.sampled_from([None, None, 0.0, 0.5, 1.0, 3.0])
ROLLOUTS = st.lists(st.tuples(BEHAVIOURS, BEHAVIOURS, BUDGETS, BUDGETS), min_size=1, max_size=6)
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["cancel task", "cancel rollout", "tick", "sleep"]), st.integers(0, 5)
    ),
    max_size=12,
)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rollouts=ROLLOUTS, actions=ACTIONS, limit=st.sampled_from([None, 1, 2]))
def test_b03_every_interleaving_ends_at_zero(
    rollouts: list[tuple[str, str, float | None, float | None]],
    actions: list[tuple[str, int]],
    limit: int | None,
    make_backend: MakeBackend,
    make_request: MakeRequest,
) -> None:
    """Whatever rollouts do and whoever cancels them when: each ends once, every slot comes back,
    and who was told that a rollout is cancelled sees nothing else."""

    async def behave(how: str) -> None:
        if how == "raise":
            raise ValueError
        if how == "exit":
            raise SystemExit
        if how == "cancel itself":
            raise asyncio.CancelledError
        if how == "sleep":
            await asyncio.sleep(1)
        if how == "swallow":
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                await asyncio.sleep(0)

    async def run(ctx: AgentWorkflowContext[Any]) -> list[Any]:
        await behave((ctx.metadata or {})["run"])
        return [ANSWER]

    async def grade(ctx: GraderContext) -> None:
        ctx.set_reward(1)
        await behave((ctx.metadata or {})["grade"])

    backend = make_backend(run, grade, limit=limit, grader_limit=1)
    told: dict[str, str] = {}
    aborted: set[str] = set()

    async def act(tasks: dict[str, asyncio.Task[ExecutionOutcome]]) -> None:
        for action, number in actions:
            name = f"r-{number % len(tasks)}"
            if action == "cancel task" and not tasks[name].done():
                tasks[name].cancel()
                aborted.add(name)
            elif action == "cancel rollout":
                dispositions = backend.cancel_rollouts(ids=[name])
                told.update({k: v for k, v in dispositions.items() if v != "not_found"})
            elif action == "sleep":
                await asyncio.sleep(number / 4)
            else:
                await asyncio.sleep(0)

    async def main() -> None:
        tasks = {
            f"r-{number}": asyncio.create_task(
                backend.execute(
                    make_request(
                        f"r-{number}",
                        metadata={"run": first, "grade": second},
                        agent_timeout_sec=agent,
                        grader_timeout_sec=grader,
                    )
                )
            )
            for number, (first, second, agent, grader) in enumerate(rollouts)
        }
        await act(tasks)
        ends = await asyncio.gather(*tasks.values(), return_exceptions=True)
        for name, end in zip(tasks, ends, strict=True):
            if name in aborted:
                assert isinstance(end, asyncio.CancelledError)
                continue
            assert isinstance(end, ExecutionOutcome)
            assert end.result.status.is_final
            assert (end.result.status is RolloutStatus.CANCELLED) == (name in told)
            reward = end.result.sample.reward if end.result.sample else None
            assert reward == (1.0 if end.grader and end.result.status == "success" else None)
        assert load(backend) == {"max_concurrent": limit, "queued": 0, "running": 0}
        assert backend.cancel_rollouts(all=True) == {}

    with asyncio.Runner(loop_factory=InstantLoop) as runner:
        runner.run(main())
