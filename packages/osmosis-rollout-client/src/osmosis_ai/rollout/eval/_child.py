"""Serve an app on an inherited socket until told to stop, or until the parent is gone.

A script, not a module: it runs in the environment of the user's project, which needs uvicorn and
need not have this package. Arguments: the directory to import from, the app's reference, the file
descriptors of the bound socket and of a pipe whose other end the parent holds.
"""

import os
import signal
import socket
import sys
import threading


def _end_with_parent(pipe: int) -> None:
    # The parent never writes: reading ends when the parent does, however it ended.
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def main(folder: str, reference: str, bound_socket: str, parent_pipe: str) -> None:
    """Serve; end with status 1 or 3 when the app cannot be imported or does not start."""
    import uvicorn

    # In place of this script's own directory.
    sys.path[0] = folder
    threading.Thread(target=_end_with_parent, args=(int(parent_pipe),), daemon=True).start()
    server = uvicorn.Server(uvicorn.Config(reference, access_log=False))
    server.run(sockets=[socket.socket(fileno=int(bound_socket))])
    if not server.started:
        sys.exit(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
