"""What holds for every test.

Before anything imports a2a: without the variable the SDK decorates every method with spans. Examples of
Hypothesis have no deadline: how long one takes says more of the machine than of the code.
"""

import os

from hypothesis import settings

os.environ["OTEL_INSTRUMENTATION_A2A_SDK_ENABLED"] = "false"

settings.register_profile("a2a-handoff", deadline=None)
settings.load_profile("a2a-handoff")
