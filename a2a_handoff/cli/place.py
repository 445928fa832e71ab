"""Where the broker is, and who asks it.

Duty: the two things that every client command needs.
Not here: asking (``remote``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from a2a_handoff.cli.outcome import USAGE, Failed


@dataclass(frozen=True, slots=True)
class Place:
    """A broker's address, and the token to show there: the token itself, ``@FILE``, or nothing."""

    url: str
    token: str = ""

    def headers(self) -> dict[str, str]:
        """The header that says who asks; none without a token. Raises ``Failed`` for a bad file."""
        token = self.token
        if token.startswith("@"):
            try:
                token = Path(token[1:]).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise Failed(f"--token: {token[1:]} cannot be read: {error}", code=USAGE) from None
        token = token.strip()
        if not token.isascii() or any(char.isspace() for char in token):
            raise Failed("--token: that is no token", code=USAGE)
        return {"Authorization": f"Bearer {token}"} if token else {}
