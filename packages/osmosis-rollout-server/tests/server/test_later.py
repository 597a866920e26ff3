"""Calls after a delay."""

import asyncio

from osmosis_ai.rollout.server._later import Later


async def test_calls_come_in_order_and_only_those_that_were_not_cancelled() -> None:
    later, called = Later(0.05), list[int]()
    over = asyncio.Event()
    calls = [later.call(called.append, number) for number in range(10)]
    for call in calls[:5:2] + calls[7:]:
        call.cancel()
    await asyncio.sleep(0)
    assert called == []
    later.call(over.set)
    await over.wait()
    assert called == [1, 3, 5, 6]
    over.clear()
    later.call(over.set)
    await over.wait()


async def test_a_call_may_fail_and_may_call_later_again() -> None:
    later = Later(0)
    over = asyncio.Event()
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    later.call(lambda: 1 / 0)
    later.call(lambda: later.call(over.set))
    await over.wait()
    assert len(errors) == 1


async def test_calls_that_are_due_together_leave_turns_to_others() -> None:
    later, called = Later(0), list[int]()
    for number in range(100):
        later.call(called.append, number)
    turns = 0
    while len(called) < 100:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 10
    assert called == list(range(100))
