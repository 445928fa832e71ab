"""A broker that hands tasks from one A2A agent to another, without losing any."""

import os

__version__ = "0.2.0.dev0"

# Read once, when a2a is first imported: left on, the SDK makes a span of every method of its queues.
os.environ.setdefault("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false")
