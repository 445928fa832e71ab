"""``python -m a2a_handoff`` is the command ``a2a-handoff``."""

import sys

from a2a_handoff.cli import main

if __name__ == "__main__":
    sys.exit(main())
