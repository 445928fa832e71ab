"""The command line ``a2a-handoff``.

``commands`` names every command and its options and imports what a command needs only when it runs,
so that ``--help`` is quick. ``serving`` starts the broker; ``remote`` talks to a running one, ``send``
sends a task and shows what comes back, ``show`` draws answers, ``checking`` looks at files.
"""

from a2a_handoff.cli.commands import main

__all__ = ["main"]
