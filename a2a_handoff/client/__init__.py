"""The outbound side: deliver to agents over A2A, read their cards, call webhooks."""

from a2a_handoff.client.agents import A2AClient
from a2a_handoff.client.cards import WellKnownCardFetcher
from a2a_handoff.client.webhooks import WebhookClient

__all__ = ["A2AClient", "WebhookClient", "WellKnownCardFetcher"]
