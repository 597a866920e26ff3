"""Turns of the event loop."""

import asyncio

import pytest

from osmosis_ai.rollout.backend.turns import Turns


async def turns_of(turns: Turns, callers: int) -> list[int]:
    """Return the turn of the loop in which each of the callers went on."""
    now = 0
    went_on: list[int] = []

    async def caller() -> None:
        await turns.take()
        went_on.append(now)

    tasks = [asyncio.create_task(caller()) for _ in range(callers)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        now += 1
    return went_on


@pytest.mark.parametrize("per_turn", [1, 2, 7])
async def test_so_many_go_on_per_turn(per_turn: int) -> None:
    went_on = await turns_of(Turns(per_turn), 50)
    assert len(went_on) == 50
    assert max(went_on.count(turn) for turn in went_on) <= per_turn


async def test_nobody_waits_where_nothing_piles_up() -> None:
    turns = Turns(1)
    for _ in range(3):
        taking = asyncio.ensure_future(turns.take())
        await asyncio.sleep(0)
        assert taking.done()
        await asyncio.sleep(0.01)


async def test_first_come_first_served_and_who_leaves_costs_nobody_a_turn() -> None:
    turns = Turns(1)
    order: list[int] = []

    async def caller(number: int) -> None:
        await turns.take()
        order.append(number)

    tasks = [asyncio.create_task(caller(number)) for number in range(10)]
    await asyncio.sleep(0)
    for task in tasks[3:6]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 1, 2, 6, 7, 8, 9]


async def test_futures_are_admitted_in_the_same_line() -> None:
    """A few per turn, after who came before; one that is done already takes no turn."""
    turns = Turns(2)
    taking = asyncio.ensure_future(turns.take())
    await asyncio.sleep(0)
    tickets = [asyncio.get_running_loop().create_future() for _ in range(7)]
    tickets[3].cancel()
    for ticket in tickets:
        turns.admit(ticket)
    done: list[int] = []
    for _ in range(3):
        done.append(sum(ticket.done() for ticket in tickets))
        await asyncio.sleep(0)
    assert taking.done()
    assert done == [2, 4, 6]
    await asyncio.gather(*tickets, return_exceptions=True)
