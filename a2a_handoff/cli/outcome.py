"""How a command ends: exit codes, and the failures that are told in plain lines.

0 done, 1 refused or failed, 2 wrong usage or settings, 3 no broker answered, 130 interrupted.
"""

from __future__ import annotations

FAILED = 1
USAGE = 2
UNREACHABLE = 3
INTERRUPTED = 130


class Failed(Exception):
    """A command cannot go on. ``lines`` are shown on standard error, ``code`` is the exit code.

    A line that begins with a blank belongs to the one before it.
    """

    def __init__(self, *lines: str, code: int = FAILED) -> None:
        self.lines = lines
        self.code = code
        super().__init__("\n".join(lines))
