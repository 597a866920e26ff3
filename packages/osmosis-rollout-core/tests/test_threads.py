"""Threads of our own, and a pool that does not wait for ever."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osmosis_ai.rollout.threads import PatientExecutor, off_loop

type Job = Callable[[int], int]


async def test_the_result_and_the_error_are_those_of_the_function() -> None:
    """Positional and keyword arguments arrive; whatever is raised is the caller's."""
    assert await off_loop(divmod, 7, 2) == (3, 1)
    assert await off_loop(int, "11", base=2) == 3
    for error in (OSError("no"), SystemExit(3), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            await off_loop(throw, error)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await off_loop(throw, StopIteration())
    assert await off_loop(threading.get_ident) != threading.get_ident()


def throw(error: BaseException) -> None:
    """Raise it."""
    raise error


async def test_b10_hanging_calls_in_asyncios_threads_do_not_matter() -> None:
    """User code may occupy every thread of the event loop's own pool."""
    release = threading.Event()
    hanging = [asyncio.create_task(asyncio.to_thread(release.wait)) for _ in range(64)]
    try:
        assert await asyncio.wait_for(off_loop(lambda: 4), 30) == 4
    finally:
        release.set()
        await asyncio.gather(*hanging)


async def test_many_results_find_their_callers() -> None:
    """Results that come back together are not mixed up, and a caller that left is left out."""
    futures = [off_loop(lambda number: number, number) for number in range(500)]
    futures[7].cancel()
    await asyncio.wait(futures)
    assert [f.result() for f in futures if not f.cancelled()] == [n for n in range(500) if n != 7]


def test_one_loop_after_another() -> None:
    """A result for a loop that is gone is dropped; the next loop is served."""
    release = threading.Event()

    async def leave_one_behind() -> None:
        off_loop(release.wait)

    asyncio.run(leave_one_behind())
    release.set()
    for _ in range(3):
        assert asyncio.run(answer()) == 4


async def answer() -> int:
    """Answer from a thread."""
    return await off_loop(lambda: 4)


async def test_an_idle_thread_keeps_nothing_alive() -> None:
    """What a job used is freed, though its thread waits for the next one."""

    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    await off_loop(id, thing)
    del thing
    await off_loop(time.sleep, 0.01)
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    """As with servers that load the app before they fork."""
    assert asyncio.run(answer()) == 4
    if (child := os.fork()) == 0:
        os._exit(asyncio.run(answer()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4


def test_a_hanging_call_holds_up_neither_the_loops_end_nor_the_exit() -> None:
    """Other calls are waited for, and one that hangs only as long as there is patience."""
    code = """
import asyncio, threading, time
from osmosis_ai.rollout.threads import PatientExecutor, off_loop

async def main():
    asyncio.get_running_loop().set_default_executor(PatientExecutor(0.5))
    hanging = asyncio.create_task(asyncio.to_thread(threading.Event().wait))
    off_loop(threading.Event().wait)
    print(await asyncio.to_thread(lambda: 4))
    asyncio.get_running_loop().run_in_executor(None, lambda: (time.sleep(0.1), print("done")))

asyncio.run(main())
print("over")
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=40, check=True
    )
    assert ended.stdout.split() == ["4", "done", "over"]


def test_a_patient_executor_is_an_executor() -> None:
    """Results, errors, order of shutdown and cancellation are as in any pool."""
    pool = PatientExecutor(10)
    assert list(pool.map(str, range(3))) == ["0", "1", "2"]
    with pytest.raises(OSError, match="no"):
        pool.submit(throw, OSError("no")).result()
    release = threading.Event()
    running = [pool.submit(release.wait, 30) for _ in range(40)]
    pool.shutdown(wait=False, cancel_futures=True)
    assert running[-1].cancelled()
    assert not running[0].cancelled()
    release.set()
    pool.shutdown()
    assert running[0].result()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(str)


async def test_results_that_come_together_leave_turns_to_others() -> None:
    """However quick the jobs are, one step of the loop is told of a few only."""
    futures = [off_loop(lambda: 4) for _ in range(100)]
    turns = 0
    while not all(future.done() for future in futures):
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 10


async def test_a_job_that_hangs_holds_up_nobody_else() -> None:
    """Neither the jobs behind it, which came in the same moment, nor the loop."""
    release = threading.Event()
    hanging = off_loop(release.wait, 60)
    try:
        others = [off_loop(lambda number: number, number) for number in range(20)]
        assert await asyncio.wait_for(asyncio.gather(*others), 30) == list(range(20))
        assert not hanging.done()
    finally:
        release.set()
    assert await hanging


async def test_a_job_that_comes_late_wakes_up_the_loop() -> None:
    """What the loop did not wait for comes in as soon as it is there."""
    assert [await off_loop(late, number) for number in range(5)] == list(range(5))


def late(number: int) -> int:
    """Return the number, later than a loop waits for it."""
    time.sleep(0.02)
    return number


def test_a_loop_that_has_ended_is_not_kept() -> None:
    """As in programs that call asyncio.run again and again."""
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def use() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        assert await off_loop(lambda: 4) == 4

    asyncio.run(use())
    gc.collect()
    assert loops[0]() is None


def test_a_loop_that_has_ended_before_its_job_is_not_kept() -> None:
    """Not for longer than until another loop has work: nobody takes its result."""
    begun, release, over = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        release.wait()
        threading.Timer(0.1, over.set).start()

    async def leave() -> None:
        off_loop(work)
        while not begun.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    loop.close()
    gone = weakref.ref(loop)
    del loop
    release.set()
    assert over.wait(30)
    assert asyncio.run(answer()) == 4
    gc.collect()
    assert gone() is None


def outcome_of(script: str) -> list[str]:
    """Run a script in a process of its own, and return the lines that it prints."""
    head = """
import asyncio, signal, threading, time
from osmosis_ai.rollout.threads import PatientExecutor, off_loop

async def answer():
    return await asyncio.wait_for(off_loop(lambda: 4), 30)
"""
    ended = subprocess.run(
        [sys.executable, "-c", head + script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return ended.stdout.splitlines()


def test_where_the_system_gives_no_threads_the_work_is_done_nevertheless() -> None:
    """Where there is one, it does all; where there is none, the loop does it. Later all is well."""
    lines = outcome_of("""
threading.stack_size(1 << 47)
print(asyncio.run(answer()))
threading.stack_size(0)
print(asyncio.run(answer()))
threading.stack_size(1 << 47)

async def main():
    return await asyncio.wait_for(asyncio.gather(*(off_loop(int, n) for n in range(20))), 30)

print(asyncio.run(main()) == list(range(20)))
""")
    assert lines == ["4", "4", "True"]


def test_a_pool_that_gets_no_thread_says_so_and_can_be_shut_down() -> None:
    """The caller is told, as by any pool; the next call gets its thread."""
    lines = outcome_of("""
pool = PatientExecutor(10)
threading.stack_size(1 << 47)
try:
    pool.submit(int)
except RuntimeError as error:
    print(error)
threading.stack_size(0)
print(pool.submit(int, "4").result(30))
pool.shutdown()
print("over")
""")
    assert lines == ["can't start new thread", "4", "over"]


def test_a_loop_that_was_interrupted_goes_on() -> None:
    """Ctrl-C in a notebook, in the moment in which the loop stands aside: no call is lost."""
    lines = outcome_of("""
main = threading.get_ident()

def interrupt():
    signal.pthread_kill(main, signal.SIGINT)
    time.sleep(0.1)

async def begin():
    futures.extend([off_loop(interrupt), *(off_loop(int, n) for n in range(5))])
    await asyncio.sleep(30)

async def wait():
    return (await asyncio.wait_for(asyncio.gather(*futures), 30))[1:]

futures = []
loop = asyncio.new_event_loop()
try:
    loop.run_until_complete(begin())
except KeyboardInterrupt:
    print("interrupted")
print(loop.run_until_complete(wait()) == list(range(5)))
print(loop.run_until_complete(answer()))
""")
    assert lines == ["interrupted", "True", "4"]


def succeed(number: int) -> int:
    """Return the number at once."""
    return number


def fail(number: int) -> int:
    """Raise a KeyError with the number."""
    raise KeyError(number)


def exit_with(number: int) -> int:
    """Raise a SystemExit with the number."""
    raise SystemExit(number)


def nest(number: int) -> int:
    """Return the number by way of a loop of its own."""
    return asyncio.run(through(number))


async def through(number: int) -> int:
    """Return the number from a thread."""
    return await off_loop(succeed, number)


steps = st.lists(
    st.tuples(
        st.sampled_from([succeed, late, fail, exit_with]),
        st.sampled_from(["wait", "leave", "go on"]),
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, min_size=1, max_size=3))
def test_every_call_has_its_own_outcome_once(plans: list[list[tuple[Job, str]]]) -> None:
    """Whatever others do, on several loops at once that share the threads."""

    async def carry_out(plan: list[tuple[Job, str]]) -> None:
        calls: list[int] = []

        def counted(job: Job, number: int) -> int:
            calls.append(number)
            return job(number)

        futures: list[asyncio.Future[int]] = []
        for number, (job, then) in enumerate(plan):
            futures.append(off_loop(counted, job, number))
            if then == "leave":
                futures[-1].cancel()
            elif then == "wait":
                await asyncio.wait(futures[-1:])
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        for number, ((job, then), outcome) in enumerate(zip(plan, outcomes, strict=True)):
            if then == "leave":
                assert isinstance(outcome, asyncio.CancelledError)
            elif job in {succeed, late}:
                assert outcome == number
            else:
                assert isinstance(outcome, KeyError if job is fail else SystemExit)
                assert outcome.args == (number,)
        while len(calls) < len(plan):  # of those that were left  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert sorted(calls) == list(range(len(plan)))

    with ThreadPoolExecutor(len(plans)) as loops:
        list(loops.map(lambda plan: asyncio.run(carry_out(plan), debug=True), plans))


def test_a_job_may_use_a_loop_of_its_own() -> None:
    """Which uses the same threads."""

    async def use() -> list[int]:
        return [await off_loop(nest, number) for number in range(10)]

    assert asyncio.run(use()) == list(range(10))
