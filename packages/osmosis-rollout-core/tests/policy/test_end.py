"""A rollout that is over ends its calls to the policy, whatever loop and thread they run on."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from osmosis_ai.rollout import RolloutContext
from osmosis_ai.rollout.policy import PolicyClient, PolicyError, RolloutEndedError
from osmosis_ai.rollout.testing import Gate, Reply, ScriptedPolicy, error_reply, reply

USER = {"role": "user", "content": "2+2?"}

type Work = Callable[[], Awaitable[None]]
type Start = Callable[[Work], asyncio.Future[None]]


def in_a_task(work: Work) -> asyncio.Future[None]:
    """Run work on this loop."""
    return asyncio.ensure_future(work())


def in_a_thread(work: Work) -> asyncio.Future[None]:
    """Run work on a loop of a thread's own."""

    async def run() -> None:
        await work()

    return asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(run())))


on_any_loop = pytest.mark.parametrize("start", [in_a_task, in_a_thread])


def gated(place: int) -> tuple[Reply, Gate]:
    """Return an answer that waits before one of its steps, and what it waits for."""
    gate = Gate()
    return reply(["two ", "words"]).insert(place, gate), gate


@on_any_loop
@pytest.mark.parametrize("place", [0, 1], ids=["before the answer", "within the answer"])
async def test_a_call_under_way(start: Start, place: int) -> None:
    """Its connection closes, its caller is told, and the next call does not reach the policy."""
    answer, gate = gated(place)
    errors: list[BaseException] = []

    async def work() -> None:
        for _ in range(2):
            with pytest.raises(RolloutEndedError, match="rollout 'r-1' is over") as caught:
                await PolicyClient().complete([USER])
            errors.append(caught.value)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    with ScriptedPolicy(answer) as policy:
        with RolloutContext(policy.url, rollout_id="r-1"):
            working = start(work)
            await asyncio.to_thread(gate.wait)
        assert await asyncio.to_thread(policy.requests[0].wait) == "disconnected"
        await working
        assert len(errors) == 2
        assert not isinstance(errors[0], PolicyError)
        assert len(policy.requests) == 1


async def test_an_answer_that_nobody_reads_at_the_moment() -> None:
    """The connection closes at once; whoever goes on reading is told then."""
    answer, _ = gated(2)
    with ScriptedPolicy(answer) as policy:
        with RolloutContext(policy.url):
            items = PolicyClient().stream([USER])
            first = await anext(items)
        assert await asyncio.to_thread(policy.requests[0].wait) == "disconnected"
        assert first
        async with aclosing(items):
            with pytest.raises(RolloutEndedError):
                await anext(items)


@on_any_loop
async def test_a_call_that_waits_to_try_again(start: Start) -> None:
    """It does not wait to its end, and does not try again."""
    failed = threading.Event()

    async def work() -> None:
        with pytest.raises(RolloutEndedError):
            await PolicyClient().complete([USER])
        failed.set()

    with ScriptedPolicy(error_reply(503, headers={"Retry-After": "30"})) as policy:
        with RolloutContext(policy.url):
            working = start(work)
            await asyncio.to_thread(policy.wait_for_requests, 1)
            await asyncio.to_thread(policy.requests[0].wait)
        assert await asyncio.to_thread(failed.wait, 10)
        await working
        assert len(policy.requests) == 1


@pytest.mark.parametrize("ticks", [-1, 0, 1, 2])
@pytest.mark.parametrize("place", [0, 1], ids=["before the answer", "within the answer"])
async def test_b03_a_cancel_beside_the_end_stays_a_cancel(ticks: int, place: int) -> None:
    """Whichever comes first, and until the call has told its caller of the end."""
    answer, gate = gated(place)
    with ScriptedPolicy(answer) as policy:
        context = RolloutContext(policy.url)
        with context:
            call = asyncio.create_task(PolicyClient().complete([USER]))
            await asyncio.to_thread(gate.wait)
            await asyncio.sleep(0.1)  # what was sent before the gate has been read
            if ticks < 0:
                call.cancel()
            context.end()
            for _ in range(ticks):
                await asyncio.sleep(0)
            is_late = call.done()
            call.cancel()
            with pytest.raises(RolloutEndedError if is_late else asyncio.CancelledError):
                await call
        assert await asyncio.to_thread(policy.requests[0].wait) == "disconnected"


async def test_calls_of_others_go_on() -> None:
    """A judge elsewhere, the rollouts beside and the outer one have nothing to do with it."""
    (judging, judge_gate), (outer, outer_gate) = gated(1), gated(1)
    with ScriptedPolicy(judging, "again") as judge, ScriptedPolicy(outer, "again") as other:
        with RolloutContext(other.url):
            beside = asyncio.create_task(PolicyClient().complete([USER]))
            await asyncio.to_thread(outer_gate.wait)
            with RolloutContext("http://127.0.0.1:9/v1"):
                verdict = asyncio.create_task(PolicyClient(judge.url).complete([USER]))
                await asyncio.to_thread(judge_gate.wait)
            judge_gate.open()
            outer_gate.open()
            assert (await verdict).text == (await beside).text == "two words"
            assert (await PolicyClient().complete([USER])).text == "again"
        assert (await PolicyClient(judge.url).complete([USER])).text == "again"


async def test_only_the_last_one_to_leave_ends_it() -> None:
    """Who enters a context again may call its policy again; after `end()` nobody may."""
    with ScriptedPolicy("a", "b", "c") as policy:
        context = RolloutContext(policy.url)
        with context:
            with context:
                assert (await PolicyClient().complete([USER])).text == "a"
            assert (await PolicyClient().complete([USER])).text == "b"
        with context:
            assert (await PolicyClient().complete([USER])).text == "c"
            context.end()
            context.end()
            with pytest.raises(RolloutEndedError):
                await PolicyClient().complete([USER])
        with context, pytest.raises(RolloutEndedError):
            await PolicyClient().complete([USER])
        assert len(policy.requests) == 3


async def test_the_end_races_with_calls_of_many_threads() -> None:
    """Whatever each of them is about, it is told, and no request is left open."""

    async def work() -> None:
        while True:
            await PolicyClient().complete([USER])

    with ScriptedPolicy(respond=lambda _: "4") as policy:
        with RolloutContext(policy.url):
            working = [start(work) for start in (in_a_task, in_a_thread) for _ in range(6)]
            await asyncio.to_thread(policy.wait_for_requests, 60, timeout=50)
        results = await asyncio.gather(*working, return_exceptions=True)
        assert {type(result) for result in results} == {RolloutEndedError}
        for request in policy.requests:
            await asyncio.to_thread(request.wait)


async def test_nothing_is_kept_of_calls_that_have_ended() -> None:
    """A rollout of many calls follows those that are under way alone."""

    def followed() -> list[object]:
        gc.collect()
        ends = [item for item in gc.get_objects() if type(item).__name__ == "AnswerWithin"]
        return [end for end in ends if end not in before]

    before: list[object] = []
    before = followed()
    failing = [error_reply(400, "no"), reply("cut").cut(1)] * 5
    with ScriptedPolicy(*failing, respond=lambda _: "4") as policy, RolloutContext(policy.url):
        for _ in failing:
            with pytest.raises(PolicyError):
                await PolicyClient().complete([USER])
        for _ in range(20):
            await PolicyClient().complete([USER])
        items = PolicyClient().stream([USER])
        await anext(items)
        assert len(followed()) == 1
        await items.aclose()
        del items
        assert not followed()
