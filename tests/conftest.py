"""What holds for every test.

Before anything imports a2a: without the variable the SDK decorates every method with spans. Examples of
Hypothesis have no deadline: how long one takes says more of the machine than of the code. Processes that
tests start can be interrupted: a shell that runs the tests in the background has that ignored. Files are
kept in memory where there is enough: half of the time would go into waiting for a disk to have what is thrown
away. What survives a kill does so there too.
"""

import os
import shutil
import signal
import tempfile
from pathlib import Path

from hypothesis import settings

os.environ["OTEL_INSTRUMENTATION_A2A_SDK_ENABLED"] = "false"

# It speaks to the tests. Brokers that they start would take it for a setting with a wrong name.
if services := os.environ.pop("A2A_HANDOFF_TEST_SERVICES", ""):
    os.environ["TEST_SERVICES"] = services

_MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2 << 30:
    os.environ["TMPDIR"] = str(_MEMORY)
    tempfile.tempdir = None

settings.register_profile("a2a-handoff", deadline=None)
settings.load_profile("a2a-handoff")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
