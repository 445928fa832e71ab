"""Before anything imports a2a: without this the SDK decorates every method with spans."""

import os

os.environ["OTEL_INSTRUMENTATION_A2A_SDK_ENABLED"] = "false"
