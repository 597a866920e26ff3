"""A rollout server for the length of a run, in a process of its own."""

import asyncio
import os
import signal
import socket
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from osmosis_ai.rollout.client import RolloutClient, RolloutProtocolError
from osmosis_ai.rollout.eval._entrypoint import Entrypoint
from osmosis_ai.rollout.eval._errors import EvalError
from osmosis_ai.rollout.eval._running import Stop

# Imports of a user's project can take long; an app that hangs must not hang the run.
_START_TIMEOUT_SEC = 120.0
# The server itself waits 10 s for running rollouts before it cancels them.
_END_TIMEOUT_SEC = 20.0
_TAIL_LINES = 20
_CHILD = Path(__file__).with_name("_child.py")
_REGRADING = Path(__file__).with_name("_regrading.py")


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """The process that serves an entrypoint.

    Attributes:
        url: The server's base URL.
        process: The process.
        log: The file that its output goes to.
        log_start: Where in that file its output begins, in bytes; before it is that of others.
    """

    url: str
    process: asyncio.subprocess.Process
    log: Path
    log_start: int

    async def ended(self) -> str:
        """Wait until the process ends, and say how it did."""
        status = await self.process.wait()
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return f"the server process ended {how}"

    def last_lines(self) -> str:
        """Return the end of what the process wrote."""
        with self.log.open("rb") as lines:
            lines.seek(self.log_start)
            return b"".join(deque(lines, _TAIL_LINES)).decode(errors="replace").rstrip()

    def not_usable(self, problem: str) -> EvalError:
        """Return the error for an app that does not come up as it should."""
        lines = self.last_lines()
        log = f"{self.log} ends with:\n{lines}" if lines else f"{self.log} holds nothing of it"
        return EvalError(f"{problem}. {log}\nCorrect that, and start the run again")


@asynccontextmanager
async def serving(
    entrypoint: Entrypoint,
    *,
    python: Path,
    env: Mapping[str, str],
    artifact_root: Path,
    log: Path,
    regraded: Path | None,
    server_key: str | None,
    stopped: asyncio.Future[Stop],
) -> AsyncGenerator[ServerProcess]:
    """Serve an app on a free port of loopback while the context lasts.

    Args:
        entrypoint: The app.
        python: The interpreter to serve it with.
        env: Further environment variables of its process.
        artifact_root: Where the server keeps one folder per rollout.
        log: Where the output of the process goes.
        regraded: The directory of a run whose samples are graded anew, instead of rollouts; or
            None.
        server_key: The server's own key, or None.
        stopped: Once it has a result, nobody waits any longer for the app to come up.

    Raises:
        EvalError: the app does not come up; the message ends with what the process wrote last.
    """
    environment = os.environ | env | {"_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": str(artifact_root)}
    pipe_read, pipe_write = os.pipe()
    try:
        try:
            wrapper = [str(_REGRADING), str(regraded)] if regraded else []
            server = await _start(entrypoint, python, pipe_read, environment, log, wrapper)
        finally:
            os.close(pipe_read)
        try:
            await _wait_healthy(server, server_key, stopped)
            yield server
        finally:
            await _end(server.process)
    finally:
        os.close(pipe_write)


async def _start(
    entrypoint: Entrypoint,
    python: Path,
    pipe: int,
    env: dict[str, str],
    log: Path,
    wrapper: list[str],
) -> ServerProcess:
    # Bound here and inherited, so that nobody can take the port in between. Only the child
    # listens: without it connections are refused rather than left waiting.
    with socket.socket() as bound, log.open("ab") as output:
        log_start = output.tell()
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        inherited = [bound.fileno(), pipe]
        if entrypoint.is_script:
            # It binds by itself, to the port that it reads from its environment.
            bound.close()
            inherited = [pipe]
        try:
            process = await asyncio.create_subprocess_exec(
                python,
                str(_CHILD),
                str(entrypoint.folder),
                entrypoint.reference,
                str(inherited[0]),
                str(pipe),
                *wrapper,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=inherited,
                env=env | {"_OSMOSIS_ROLLOUT_PORT": str(port)},
                # A Ctrl-C on the terminal is ours to handle; the child is told when to end.
                start_new_session=True,
            )
        except OSError as error:
            msg = f"{python}: cannot be started: {error.strerror or error}"
            raise EvalError(msg) from None
        return ServerProcess(f"http://127.0.0.1:{port}", process, log, log_start)


async def _wait_healthy(
    server: ServerProcess, server_key: str | None, stopped: asyncio.Future[Stop]
) -> None:
    ended = asyncio.create_task(server.ended())
    healthy = asyncio.create_task(_healthy(server, server_key))
    events: set[asyncio.Future[Any]] = {ended, healthy, stopped}
    try:
        await asyncio.wait(events, timeout=_START_TIMEOUT_SEC, return_when=asyncio.FIRST_COMPLETED)
        if healthy.done():
            return healthy.result()
        if stopped.done():
            return None
        late = f"the server did not come up within {_START_TIMEOUT_SEC:.0f} s"
        raise server.not_usable(ended.result() if ended.done() else late)
    finally:
        ended.cancel()
        healthy.cancel()


async def _healthy(server: ServerProcess, server_key: str | None) -> None:
    async with RolloutClient(url=server.url, api_key=server_key) as client:
        while True:
            try:
                await client.health()
            except RolloutProtocolError as error:
                if error.status_code is not None:
                    raise server.not_usable(health_problem(error)) from None
                await asyncio.sleep(0.05)
            else:
                return


def health_problem(error: RolloutProtocolError) -> str:
    """Return what is wrong with a server that does not tell its health, and what may help."""
    match error.status_code:
        case None:
            return str(error)
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return f"{error} (OSMOSIS_ROLLOUT_SERVER_KEY must hold the server's key)"
        case _:
            return f"{error} (is that an app which create_rollout_server returned?)"


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    try:
        process.terminate()
        async with asyncio.timeout(_END_TIMEOUT_SEC):
            await process.wait()
    except TimeoutError:
        pass
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
