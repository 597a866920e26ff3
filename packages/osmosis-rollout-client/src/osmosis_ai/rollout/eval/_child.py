"""Serve an entrypoint until told to stop, or until the parent is gone.

A script, not a module: it runs in the environment of the user's project, which need not have this
package. Arguments: the directory to import from, the reference of an app or the name of a script,
the file descriptors of the bound socket and of a pipe whose other end the parent holds; then,
perhaps, another script like this one, and an argument for its `wrap(app, argument)`, which returns
the app to serve instead. A script as an entrypoint gets no socket: it listens on the port that
`_OSMOSIS_ROLLOUT_PORT` names.
"""

import importlib
import importlib.util
import inspect
import os
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial, reduce
from typing import Any


class _Served(BaseException):
    """Ends a script where it would have served its app."""


def _end_with_parent(pipe: int) -> None:
    # The parent never writes: reading ends when the parent does, however it ended.
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _app_of_module(module: str, attributes: str) -> Any:
    imported = importlib.import_module(module)
    try:
        return reduce(getattr, attributes.split("."), imported)
    except AttributeError:
        sys.exit(f"{module} has no {attributes}: name what create_rollout_server returned")


def _check_app(app: Any, reference: str) -> None:
    """End the process, with the reason, when this cannot be called as an ASGI app is called."""
    try:
        if callable(app):
            inspect.signature(app).bind("scope", "receive", "send")
            return
    except ValueError:
        return  # what is written in C need not tell
    except TypeError:
        pass
    kind = type(app).__name__
    sys.exit(f"{reference} is no app but of type {kind}: name what create_rollout_server returned")


def _serve(app: Any, bound: socket.socket) -> None:
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, access_log=False))
    server.run(sockets=[bound])
    if not server.started:
        sys.exit(3)


def _app_of_script(path: str) -> Any:
    """Run a script that serves by itself, or return the app that it leaves to others to serve."""
    sys.argv = [path]
    return runpy.run_path(path, run_name="__main__").get("app")


def _app_caught_in_script(path: str) -> Any:
    """Run a script up to where it serves, and return what it would have served."""
    import uvicorn

    caught: list[Any] = []

    def run(app: Any, *args: Any, **options: Any) -> None:
        caught.append(app)
        raise _Served

    uvicorn.run = run
    with suppress(_Served):
        caught.append(_app_of_script(path))
    return caught[0]


def _serve_script(path: str, wrap: Callable[[Any], Any] | None) -> None:
    app = wrap(_app_caught_in_script(path)) if wrap else _app_of_script(path)
    if app is not None:
        _check_app(app, f"app in {os.path.basename(path)}")
        # By its protocol's number, or else asyncio would delay every answer of a quiet connection.
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.bind(("127.0.0.1", int(os.environ["_OSMOSIS_ROLLOUT_PORT"])))
        _serve(app, bound)


def main(folder: str, reference: str, bound_socket: str, parent_pipe: str, *wrapper: str) -> None:
    """Serve; end with status 1 or 3 when the entrypoint cannot be imported or does not start."""
    # In place of this script's own directory.
    sys.path[0] = folder
    threading.Thread(target=_end_with_parent, args=(int(parent_pipe),), daemon=True).start()
    if importlib.util.find_spec("uvicorn") is None:
        needed = f"{sys.executable} -m pip install osmosis-rollout-server"
        sys.exit(f"The environment that serves the entrypoint has no server: {needed}")
    wrap = None
    if wrapper:
        script, argument = wrapper
        wrap = partial(runpy.run_path(script)["wrap"], argument=argument)
    if reference.endswith(".py"):
        _serve_script(os.path.join(folder, reference), wrap)
        return
    module, _, attributes = reference.partition(":")
    app = _app_of_module(module, attributes)
    _check_app(app, reference)
    _serve(wrap(app) if wrap else app, socket.socket(fileno=int(bound_socket)))


if __name__ == "__main__":
    main(*sys.argv[1:])
