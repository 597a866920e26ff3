"""Recordings of what a policy answered, call by call, and the policy that answers so again.

A recording is a run's `recording.jsonl`. A line holds one call: the row and the attempt that made
it, a digest of what was asked, and the answer as it went over the wire.
"""

import hashlib
import json
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from osmosis_ai.rollout.eval._errors import EvalError, RunError
from osmosis_ai.rollout.eval._journal import whole_bytes
from osmosis_ai.rollout.eval._outcomes import Job, Place
from osmosis_ai.rollout.eval._policy import Endpoint
from osmosis_ai.rollout.eval._stored import StoredRun
from osmosis_ai.rollout.testing import (
    Cut,
    Pause,
    PolicyRequest,
    Reply,
    ScriptedPolicy,
    Step,
    error_reply,
    raw_reply,
)

_LEAVING_SEC: Final = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of a policy.

    Attributes:
        status: The HTTP status, or 0 where the rollout left before there was any.
        content_type: Its header of that name.
        body: The body, as far as it came.
        cut: Whether the connection broke before the body's end.
        left_after_sec: How long the rollout waited before it left, in seconds; None where it
            stayed to the end.
    """

    status: int
    content_type: str
    body: bytes
    cut: bool = False
    left_after_sec: float | None = None


class Recording:
    """Appends calls to a recording.

    Args:
        path: The file; it is made with the first call, where it is missing. What a lost process
            left half-written at its end is cut off.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._failure: RunError | None = None

    def append(self, job: Job, request: Mapping[str, Any], answer: Answer) -> None:
        """Write one call.

        Args:
            job: The rollout that made it.
            request: The JSON body that the rollout sent, before anything was changed in it.
            answer: What the rollout got.

        Raises:
            RunError: it cannot be written, or one before it could not.
        """
        if self._failure is not None:
            raise self._failure
        row, attempt = job.place
        line = {
            "row": row,
            "attempt": attempt,
            "rollout_id": job.rollout_id,
            "request": request_digest(request),
            "status": answer.status,
            "content_type": answer.content_type,
            # Bytes that are no UTF-8 become half characters, which JSON can escape.
            "body": answer.body.decode("utf-8", "surrogateescape"),
            "cut": answer.cut,
            "left_after_sec": answer.left_after_sec,
        }
        try:
            file = self._opened()
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
        except OSError as error:
            msg = f"{self._path}: cannot be written: {error.strerror or error}"
            self._failure = RunError(msg)
            raise self._failure from None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            with suppress(OSError):  # what could not be written has been reported
                self._file.close()

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._file = self._path.open("ab")
            self._file.truncate(whole_bytes(self._path))
        return self._file


def request_digest(request: Mapping[str, Any]) -> str:
    """Return 32 hexadecimal digits that are the same for equal requests only."""
    content = json.dumps(request, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:32]


class RecordedRun:
    """Plays the policy of a run that was recorded, offline.

    Each attempt at each row gets the answers that it got then, matched by what it asks. One that
    asks anything else is answered with a 400: the run would not be the same any more.
    """

    models: Sequence[str] = ()

    def __init__(self, run: StoredRun) -> None:
        self._run = run
        self._path = run.files.recording
        self._calls: dict[Place, dict[str, deque[int]]] = {}
        self._policy = ScriptedPolicy(respond=self._respond)
        self._running = False

    @property
    def attempts(self) -> int:
        """How often every row was tried."""
        return len(self._run.models)

    @property
    def identity(self) -> Mapping[str, Any]:
        """The recording's content."""
        with self._path.open("rb") as file:
            return {"recording": hashlib.file_digest(file, "sha256").hexdigest()}

    async def start(self) -> None:
        """Read the recording, and serve what it holds.

        Raises:
            EvalError: there is none, or it is damaged.
        """
        self._calls = self._index()
        self._policy.__enter__()
        self._running = True

    async def stop(self) -> None:
        """Stop to serve."""
        if self._running:
            self._policy.__exit__(None, None, None)

    def endpoint(self, job: Job) -> Endpoint:
        """Return where one attempt at one row gets its answers."""
        row, attempt = job.place
        return Endpoint(f"{self._policy.root_url}/{row}/{attempt}/v1")

    def report(
        self, job: Job, messages: Sequence[Mapping[str, Any]] | None
    ) -> dict[str, Any] | None:
        """Return how many recorded calls the rollout has not made, if there are any."""
        left = sum(map(len, self._calls.get(job.place, {}).values()))
        return {"recorded_calls_not_made": left} if left else None

    def _index(self) -> dict[Place, dict[str, deque[int]]]:
        # What an attempt got when it ran last is what counts: it may have been run again.
        last = {outcome.place: outcome.rollout_id for outcome in self._run.outcomes()}
        calls: dict[Place, dict[str, deque[int]]] = defaultdict(lambda: defaultdict(deque))
        offset = 0
        try:
            with self._path.open("rb") as lines:
                for line in lines:
                    # A lost process may have left half a line.
                    if line.endswith(b"\n"):
                        call = json.loads(line)
                        place = call["row"], call["attempt"]
                        if last.get(place) == call["rollout_id"]:
                            calls[place][call["request"]].append(offset)
                    offset += len(line)
        except OSError as error:
            msg = f"run {self._run.name} was not recorded: {error.strerror or error}"
            raise EvalError(msg) from None
        except (ValueError, KeyError, TypeError):
            msg = f"{self._path}: no recording, or a damaged one"
            raise EvalError(msg) from None
        return calls

    def _respond(self, request: PolicyRequest) -> Reply:
        row, attempt = map(int, request.path.split("/")[1:3])
        calls = self._calls.get((row, attempt), {})
        offsets = calls.get(request_digest(request.body))
        if not offsets:
            return error_reply(400, "the recorded run did not ask this: it took another course")
        with self._path.open("rb") as file:
            file.seek(offsets.popleft())
            call = json.loads(file.readline())
        return _reply_of(call)


def _reply_of(call: Mapping[str, Any]) -> Reply:
    body = call["body"].encode("utf-8", "surrogateescape")
    steps: list[Step] = [body]
    if (waited := call["left_after_sec"]) is not None:
        # Long enough for the rollout to leave again, and not for ever where it does not.
        steps += [Pause(2 * waited + _LEAVING_SEC), Cut()]
    elif call["cut"]:
        steps.append(Cut())
    headers = {"Content-Type": call["content_type"]}
    if not call["status"]:
        return raw_reply(*steps)
    return Reply(steps=tuple(steps), status=call["status"], headers=headers)
