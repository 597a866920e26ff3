"""Calls after a delay."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import override

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from osmosis_ai.rollout.server._later import Call, Later


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


class TurnedClock(asyncio.SelectorEventLoop):
    """A loop whose time passes when a test says so, and which never waits."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.timers: list[asyncio.TimerHandle] = []

    @override
    def time(self) -> float:
        return self.now

    @override
    def call_at[*P](
        self,
        when: float,
        callback: Callable[[*P], object],
        *args: *P,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = super().call_at(when, callback, *args, context=context)
        self.timers = [known for known in self.timers if known.when() > self.now] + [timer]
        return timer

    def turn(self, seconds: float) -> None:
        self.now += seconds
        for _ in range(40):  # more steps than any calls of a test take
            self.call_soon(self.stop)
            self.run_forever()


class CallsLater(RuleBasedStateMachine):
    """What is due is called once, in order, not before and no later; the rest never."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = TurnedClock()
        self.later = self.loop.run_until_complete(self.make())
        self.calls: list[Call] = []
        self.called: list[tuple[int, float]] = []
        self.expected: list[tuple[int, float]] = []
        self.open: dict[int, float] = {}

    async def make(self) -> Later:
        return Later(10)

    @rule()
    def call(self) -> None:
        number = len(self.calls)
        call = self.later.call(lambda: self.called.append((number, self.loop.now)))
        self.calls.append(call)
        self.open[number] = self.loop.now + 10

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Also what was called or cancelled before."""
        if self.calls:
            number = data.draw(st.integers(0, len(self.calls) - 1))
            self.calls[number].cancel()
            self.open.pop(number, None)

    @rule(seconds=st.integers(1, 25))
    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.loop.turn(1)
            due = [number for number, at in self.open.items() if at <= self.loop.now]
            self.expected += [(number, self.open.pop(number)) for number in due]
        assert self.called == self.expected

    @invariant()
    def has_one_timer(self) -> None:
        assert sum(timer.when() > self.loop.now for timer in self.loop.timers) <= 1

    @override
    def teardown(self) -> None:
        self.wait(25)
        self.loop.close()


TestCallsLater = CallsLater.TestCase
TestCallsLater.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
