"""The outbound side: deliver to agents over A2A, read their cards."""

from a2a_handoff.client.agents import A2AClient
from a2a_handoff.client.cards import WellKnownCardFetcher

__all__ = ["A2AClient", "WellKnownCardFetcher"]
