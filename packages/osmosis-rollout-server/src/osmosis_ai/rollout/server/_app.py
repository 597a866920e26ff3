"""The app."""

import logging
from importlib.metadata import version

from fastapi import FastAPI

from osmosis_ai.rollout.artifacts import artifact_root_from_env
from osmosis_ai.rollout.backend import ExecutionBackend
from osmosis_ai.rollout.server._archive import Archive
from osmosis_ai.rollout.server._auth import BearerGate, check_api_key
from osmosis_ai.rollout.server._documentation import documented
from osmosis_ai.rollout.server._lifecycle import Lifespan, Services, make_lifespan
from osmosis_ai.rollout.server._routes import Routes, Shortcut
from osmosis_ai.rollout.server._service import Service
from osmosis_ai.rollout.server._settings import DEFAULT_BODY_LIMIT, Settings


def create_rollout_server(
    *,
    backend: ExecutionBackend,
    lifespan: Lifespan | None = None,
    configure_logging: bool = True,
    result_wait_timeout_sec: float = 30.0,
    polling_lease_timeout_sec: float = 120.0,
    result_retention_sec: float = 900.0,
    api_key: str | None = None,
    max_body_bytes: int = DEFAULT_BODY_LIMIT,
) -> FastAPI:
    """Make the app that serves rollouts on a backend; run it with any ASGI server.

    The backend is the app's `state.backend`.

    Args:
        backend: What executes the rollouts; apps may share one.
        lifespan: Your own resources, as for any FastAPI app. They outlive the rollouts, and the
            state that it yields is passed on.
        configure_logging: Whether to log to stderr from INFO on if the root logger has no handler.
        result_wait_timeout_sec: How long one poll for a result waits for news.
        polling_lease_timeout_sec: How long a rollout lives without a poll.
        result_retention_sec: How long the result of an ended rollout can be read.
        api_key: The bearer key that every route wants; None wants none.
        max_body_bytes: The largest request body; a larger one is answered with 413.

    Raises:
        ValueError: a time, a size or the key cannot be used.
    """
    settings = Settings(
        result_wait_timeout_sec=result_wait_timeout_sec,
        polling_lease_timeout_sec=polling_lease_timeout_sec,
        result_retention_sec=result_retention_sec,
        max_body_bytes=max_body_bytes,
    )
    root = backend.artifact_root
    archive = Archive(root or artifact_root_from_env(), makes_room=root is None)
    services = Services(lambda: Service(backend, archive, settings))
    app = FastAPI(
        title="Osmosis rollout server",
        version=version("osmosis-rollout-server"),
        lifespan=make_lifespan(services, backend, lifespan),
        # Not added afterwards: each request would be compared with FastAPI's own routes first.
        routes=documented(Routes(services, backend, settings.max_body_bytes)),
    )
    # For tools that take an app by its reference and need what it runs.
    app.state.backend = backend
    app.add_middleware(Shortcut)
    if api_key is not None:
        app.add_middleware(BearerGate, api_key=check_api_key(api_key))
    if configure_logging:
        _configure_logging()
    return app


def _configure_logging() -> None:
    if logging.getLogger().hasHandlers():
        return
    logging.basicConfig(level=logging.INFO)
    # The server does not use it, but agents do: it tells every URL, and those may hold secrets.
    logging.getLogger("httpx").setLevel(logging.WARNING)
