"""What the agents of other makers have in common: a port of their own, said in a line, and a server on it."""

import socket

import uvicorn


def listen():
    """A socket that listens, and its address."""
    bound = socket.create_server(("127.0.0.1", 0))
    return bound, bound.getsockname()[1]


def serve(app, bound):
    """Say the address and serve until the end."""
    print(f"ready http://127.0.0.1:{bound.getsockname()[1]}", flush=True)
    uvicorn.run(app, fd=bound.fileno(), log_level="warning")
