"""Callback delivery: what a trainer that is called back is sent of one rollout, and when."""

import asyncio
from collections import deque
from functools import partial
from typing import Final

import orjson

from osmosis_ai.rollout.server._archive import Record
from osmosis_ai.rollout.server._outbox import BodyMaker, Delivery, Outbox
from osmosis_ai.rollout.server._posting import Target
from osmosis_ai.rollout.server._registry import Rollout
from osmosis_ai.rollout.server._wire import FinalView, PhaseView, completion_body, grader_body
from osmosis_ai.rollout.threads import off_loop
from osmosis_ai.rollout.trajectory import TrajectoryReport
from osmosis_ai.rollout.types import RolloutInitRequest, RolloutStatus

# Longer answers are parsed in a thread.
_LONG_ANSWER: Final = 64 * 1024


def wants_callbacks(request: RolloutInitRequest) -> bool:
    """Tell whether the request names a URL to call back."""
    return (request.completion_callback_url or request.grader_callback_url) is not None


class Callbacks:
    """Two channels, completion and grader: one terminal delivery each, one after the other.

    Its `follow` is a watcher of the rollout. The completion goes out when the workflow's result is
    known, the grader's body when the rollout has ended and the completion's delivery as well.
    """

    def __init__(self, rollout: Rollout, request: RolloutInitRequest, outbox: Outbox) -> None:
        key = request.controller_api_key
        self._rollout = rollout
        self._outbox = outbox
        self._completion = _target(request.completion_callback_url, key)
        self._grader = _target(request.grader_callback_url, key)
        self._line: deque[Delivery] = deque()
        self._is_sending = False
        self._is_complete = False
        self._delivered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        rollout.delivered = self._delivered

    def follow(self, status: RolloutStatus) -> None:
        """Send what the rollout's new state makes known."""
        final, workflow = self._rollout.final, self._rollout.workflow
        if final is not None:
            self._complete(final.workflow)
            self._grade(final)
        elif workflow is not None and workflow.status.is_final:
            self._complete(PhaseView.of(workflow))

    def _complete(self, workflow: PhaseView) -> None:
        if not self._is_complete:
            self._is_complete = True
            body = partial(completion_body, self._rollout.id, workflow)
            self._send("completion", self._completion, body)

    def _grade(self, final: FinalView) -> None:
        self._send("grader", self._grader, partial(grader_body, final))

    def _send(self, channel: str, target: Target | None, body: BodyMaker) -> None:
        if target is not None:
            name = f"{channel} callback of rollout {self._rollout.id}"
            self._line.append(Delivery(name, target, body, self._take_answer))
        self._send_next()

    def _send_next(self) -> None:
        if self._is_sending:
            return
        if self._line:
            self._is_sending = True
            self._outbox.put(self._line.popleft())
        elif self._rollout.final is not None and not self._delivered.done():
            self._delivered.set_result(None)

    def _take_answer(self, answer: bytes | None) -> None:
        if answer and self._rollout.record is not None:
            self._outbox.spawn(_archive_report(answer, self._rollout.id, self._rollout.record))
        self._is_sending = False
        self._send_next()


def _target(url: str | None, api_key: str | None) -> Target | None:
    return None if url is None else Target.at(url, api_key)


async def _archive_report(answer: bytes, rollout_id: str, record: Record) -> None:
    if len(answer) > _LONG_ANSWER:
        report = await off_loop(_report_in, answer, rollout_id)
    else:
        report = _report_in(answer, rollout_id)
    if report is not None:
        await record.add(report)


def _report_in(answer: bytes, rollout_id: str) -> TrajectoryReport | None:
    try:
        body = orjson.loads(answer)
    except orjson.JSONDecodeError:
        return None  # an answer need not be JSON
    return TrajectoryReport.from_answer(body, rollout_id=rollout_id)
