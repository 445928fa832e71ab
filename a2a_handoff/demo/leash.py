"""No child of the demo outlives it.

Duty: end this process when the one that started it is gone, however that one ended.
Rule: the parent holds the one writing end of a pipe and writes nothing; the system closes it when the
parent ends, even by SIGKILL. Works without polling.

``python -m a2a_handoff.demo.leash ARGUMENTS`` runs the command ``a2a-handoff ARGUMENTS`` like this.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading

_GRACE_S = 3.0


def die_with_parent(pipe: int = 0) -> None:
    """Begin to watch the reading end of a pipe: at its end this process stops, in order if it can."""
    threading.Thread(target=_watch, args=(pipe,), name="leash", daemon=True).start()


def _watch(pipe: int) -> None:
    while os.read(pipe, 1024):
        pass
    threading.Timer(_GRACE_S, os._exit, (1,)).start()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    die_with_parent()
    sys.argv[0] = "a2a-handoff"
    # By name, as the installed command does: the demo uses the broker from outside only.
    sys.exit(importlib.import_module("a2a_handoff.cli").main())
