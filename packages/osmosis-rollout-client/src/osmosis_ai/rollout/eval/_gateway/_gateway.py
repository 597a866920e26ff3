"""The gateway as the policy of a run."""

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from osmosis_ai.rollout.eval._errors import EvalError, RunError
from osmosis_ai.rollout.eval._gateway._app import GatewayServer, Refusal, json_body
from osmosis_ai.rollout.eval._gateway._calls import Calls, messages_in
from osmosis_ai.rollout.eval._gateway._passing import Passage
from osmosis_ai.rollout.eval._gateway._reporting import outcome_report, trajectory_report
from osmosis_ai.rollout.eval._gateway._upstreams import Upstreams
from osmosis_ai.rollout.eval._options import EvalOptions
from osmosis_ai.rollout.eval._outcomes import Job
from osmosis_ai.rollout.eval._policy import Endpoint
from osmosis_ai.rollout.eval._recording import Answer, Recording
from osmosis_ai.rollout.policy.answers import Endpoint as Target
from osmosis_ai.rollout.policy.answers import as_object

# So many ended rollouts are kept for servers that may still ask; some never do.
_MAX_UNHEARD: Final = 256
_FAREWELL_SEC: Final = 2.0


@dataclass(eq=False, slots=True)
class _Rollout:
    """A rollout that may call; `is_heard` tells whether its server has told of its end."""

    job: Job
    calls: Calls = field(default_factory=Calls)
    is_heard: bool = False


class Gateway:
    """Passes the calls of a run's rollouts on to upstreams, and keeps what they were answered.

    Args:
        options: What the run is to do; it names base URLs and a model.
        recording: Where every answer is kept, or None.
    """

    models: Sequence[str] = ()
    attempts: int = 1

    def __init__(self, options: EvalOptions, recording: Recording | None) -> None:
        self._model = options.model or ""
        self._recording = recording
        self._unrecorded: RunError | None = None
        self._wants_tokens = options.token_ids
        self._tokens: dict[str, Any] | None = None
        self._targets = [Target.at(url, options.upstream_key) for url in options.base_url]
        self._upstreams = Upstreams(self._targets, options.max_calls)
        self._bearer = secrets.token_urlsafe(32)
        routes = {"chat/completions": self._chat, "callback": self._hear}
        self._server = GatewayServer(self._bearer, routes)
        self._rollouts: dict[str, _Rollout] = {}
        self._unheard: dict[str, _Rollout] = {}
        self._all_heard = asyncio.Event()
        self._all_heard.set()

    @property
    def identity(self) -> Mapping[str, Any]:
        """The model, and where it is."""
        return {"base_url": [target.shown for target in self._targets], "model": self._model}

    async def start(self) -> None:
        """Begin to serve.

        Raises:
            EvalError: there is no port to listen on.
        """
        self._upstreams.start()
        if self._wants_tokens:
            self._tokens = await self._upstreams.token_parameters()
        try:
            await self._server.start()
        except OSError as error:
            msg = f"the policy gateway cannot listen on 127.0.0.1: {error.strerror or error}"
            raise EvalError(msg) from None

    async def stop(self) -> None:
        """Stop to serve, once the rollouts that have ended are told of, for seconds at most."""
        try:
            async with asyncio.timeout(_FAREWELL_SEC):
                await self._all_heard.wait()
        except TimeoutError:
            pass  # the server is gone, or calls nobody back
        await self._server.stop()
        await self._upstreams.stop()
        if self._recording is not None:
            self._recording.close()

    def endpoint(self, job: Job) -> Endpoint:
        """Return the rollout's own URL."""
        self._rollouts[job.rollout_id] = _Rollout(job)
        base = f"{self._server.url}/{job.rollout_id}"
        return Endpoint(base, self._bearer, callback_url=f"{base}/callback")

    def report(
        self, job: Job, messages: Sequence[Mapping[str, Any]] | None
    ) -> dict[str, Any] | None:
        """Return numbers over the rollout's calls, and what they and the sample tell.

        Raises:
            RunError: answers are to be recorded, and cannot be.
        """
        if self._unrecorded is not None:
            raise self._unrecorded
        rollout = self._rollouts.pop(job.rollout_id)
        if not rollout.is_heard:
            self._wait_for(rollout)
        return outcome_report(rollout.calls, messages, job.row.prompt)

    def _wait_for(self, rollout: _Rollout) -> None:
        self._unheard[rollout.job.rollout_id] = rollout
        self._all_heard.clear()
        if len(self._unheard) > _MAX_UNHEARD:
            del self._unheard[next(iter(self._unheard))]

    async def _chat(self, request: web.Request, rollout_id: str) -> web.StreamResponse:
        rollout = self._rollouts.get(rollout_id)
        if rollout is None:
            raise Refusal(404, "there is no such rollout, or it has ended")
        body = await json_body(request)
        passage = Passage(request, body, keeps=self._recording is not None)
        try:
            return await passage.run(rollout.calls, self._upstreams, self._model, self._tokens)
        finally:
            if answer := passage.recorded:
                self._record(rollout.job, body, answer)

    def _record(self, job: Job, body: Mapping[str, Any], answer: Answer) -> None:
        assert self._recording is not None
        try:
            self._recording.append(job, body, answer)
        except RunError as error:
            # The answer has gone out by now: it is the outcome that must not count.
            self._unrecorded = error

    async def _hear(self, request: web.Request, rollout_id: str) -> web.Response:
        """Answer a grader callback with what is known of the calls behind the sample's turns."""
        rollout = self._rollouts.get(rollout_id) or self._unheard.get(rollout_id)
        if rollout is None:
            raise Refusal(404, "there is no such rollout")
        body = await json_body(request)
        rollout.is_heard = True
        self._unheard.pop(rollout_id, None)
        if not self._unheard:
            self._all_heard.set()
        messages = messages_in(as_object(body.get("sample")).get("messages"))
        calls = rollout.calls.answered
        steps = rollout.calls.behind(messages, rollout.job.row.prompt) if messages else calls
        return _json(trajectory_report(steps, calls))


def _json(document: object) -> web.Response:
    return web.Response(body=json.dumps(document).encode(), content_type="application/json")
