"""The demo: a broker and its agents as real processes, five scenes, each proven.

Run by ``a2a-handoff demo``. It uses the broker from outside only, through A2A and the native REST API.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal


def run(*, keep: bool = False) -> int:
    """Play the demo; 0 if every step happened, 1 if one did not, 130 after Ctrl-C.

    ``keep`` leaves broker and agents running after the last scene, until Ctrl-C (then 0).
    """
    from a2a_handoff.demo.runner import play  # noqa: PLC0415 - a2a-sdk is slow to import
    from a2a_handoff.demo.show import Show  # noqa: PLC0415

    async def stoppable() -> int:
        playing = asyncio.ensure_future(play(keep=keep, show=Show()))
        with contextlib.suppress(NotImplementedError):  # Windows
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
        return await playing

    try:
        return asyncio.run(stoppable())
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0 if keep else 130
