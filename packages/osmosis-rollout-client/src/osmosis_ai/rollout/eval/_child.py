"""Serve an entrypoint until told to stop, or until the parent is gone.

A script, not a module: it runs in the environment of the user's project, which need not have this
package. Arguments: the directory to import from, the reference of an app or the name of a script,
the file descriptors of the bound socket and of a pipe whose other end the parent holds. A script
gets no socket: it listens on the port that `_OSMOSIS_ROLLOUT_PORT` names.
"""

import os
import runpy
import signal
import socket
import sys
import threading
from typing import Any


def _end_with_parent(pipe: int) -> None:
    # The parent never writes: reading ends when the parent does, however it ended.
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _serve(app: Any, bound: socket.socket) -> None:
    try:
        import uvicorn
    except ModuleNotFoundError:
        needed = f"{sys.executable} -m pip install osmosis-rollout-server"
        sys.exit(f"The environment that serves the entrypoint has no server: {needed}")
    server = uvicorn.Server(uvicorn.Config(app, access_log=False))
    server.run(sockets=[bound])
    if not server.started:
        sys.exit(3)


def _run_script(path: str) -> None:
    sys.argv = [path]
    names = runpy.run_path(path, run_name="__main__")
    if "app" in names:
        # It defined an app and left the serving to others.
        bound = socket.socket()
        bound.bind(("127.0.0.1", int(os.environ["_OSMOSIS_ROLLOUT_PORT"])))
        _serve(names["app"], bound)


def main(folder: str, reference: str, bound_socket: str, parent_pipe: str) -> None:
    """Serve; end with status 1 or 3 when the entrypoint cannot be imported or does not start."""
    # In place of this script's own directory.
    sys.path[0] = folder
    threading.Thread(target=_end_with_parent, args=(int(parent_pipe),), daemon=True).start()
    if reference.endswith(".py"):
        _run_script(os.path.join(folder, reference))
    else:
        _serve(reference, socket.socket(fileno=int(bound_socket)))


if __name__ == "__main__":
    main(*sys.argv[1:])
