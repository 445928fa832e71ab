"""What counts and judges contexts."""

from __future__ import annotations

from typing import Protocol

from a2a_handoff.core.context import HandoffContext


class TokenCounter(Protocol):
    """Counts tokens offline."""

    @property
    def name(self) -> str:
        """The tokenizer's name, as answers state it."""
        ...

    def count(self, text: str) -> int:
        """Tokens of ``text``."""
        ...


class ContextJudge(Protocol):
    """Scores how much of a context arrived; a model may stand in for the published formula."""

    async def score(self, sent: HandoffContext, received: bytes) -> float | None:
        """0 to 1, 1 when nothing was lost; ``None`` without evidence."""
        ...
