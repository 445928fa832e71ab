"""The cards that the broker serves: its own, those of its agents, and the key that signs them.

Duty: which card who gets, with its ETag; signatures, where there is a key for them.
Sources: A2A 1.0 sections 8.2 to 8.6; RFC 7517 section 5 (key sets); RFC 9110 section 13.1.2 (If-None-Match).
Not here: what stands in a card (``wire.broker_card``), what cards of agents mean (``wire.cards``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.ports import Principal
from a2a_handoff.registry import Registry
from a2a_handoff.transports.asgi import Scope, tenant_of
from a2a_handoff.wire.broker_card import CARD_CACHING, broker_card, etag_of, face_card, own_card
from a2a_handoff.wire.signatures import CardSigner

#: Where the card of an agent that leads through the broker is, below the agent's face.
FACE_CARD = "/agent-card.json"


class Seal:
    """The broker's key for its cards. ``key_set`` is its public half as a JWK Set."""

    def __init__(self, signer: CardSigner, key_set: bytes) -> None:
        self.signed = signer.signed
        self.key_set = key_set
        self.signed(b"{}")  # loads what it needs now, and not while somebody waits for a card


class CardPages:
    """Answers requests for cards.

    ``caller`` says who asks. ``closed``: callers must say who they are. ``url`` and ``grpc`` are where the
    broker is reached, known once it has started; an empty ``grpc`` is nowhere.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        caller: Callable[[Scope], Awaitable[Principal]],
        closed: bool,
        seal: Seal | None,
        default_tenant: str,
    ) -> None:
        self._registry = registry
        self._caller = caller
        self._closed = closed
        self._seal = seal
        self._default_tenant = default_tenant
        self.url = ""
        self.grpc = ""

    async def card(self, request: Request) -> Response:
        """The broker's card is for everybody. Where callers must say who they are it names no agent."""
        if self._closed:
            card = broker_card(self.url, (), grpc=self.grpc, secured=True)
        else:
            named = tenant_of(request.scope)
            agents = self._registry.agents(named or self._default_tenant)
            card = broker_card(self.url, agents, grpc=self.grpc, tenant=named)
        return _card_response(request, await self._sealed(card))

    def extended(self, caller: Principal, face: str) -> bytes:
        """What the public card does not say: who is there for the caller, and at which addresses."""
        url, grpc = self.url, self.grpc
        agent = self._registry.get(caller.tenant, face) if face else None
        if agent is not None:
            card = face_card(url, agent, grpc=grpc, secured=True)
        else:
            agents = self._registry.agents(caller.tenant)
            card = broker_card(url, agents, grpc=grpc, secured=True, tenant=caller.tenant)
        return self._signed(card)[0]

    async def face_card(self, request: Request) -> Response:
        """An agent's own card, byte for byte; without one, or if asked, one that leads through the broker."""
        agent_id = request.path_params["agent_id"]
        caller = await self._caller(request.scope)
        agent = self._registry.get(caller.tenant, agent_id)
        if agent is None:
            raise HandoffError(Code.AGENT_NOT_FOUND, f"There is no agent {agent_id[:64]!r}.")
        asked = request.scope["path"] == f"/agents/{agent_id}{FACE_CARD}"
        if asked or not agent.card:
            tenant = tenant_of(request.scope)
            url = f"{self.url}/{tenant}" if tenant else self.url
            card = face_card(url, agent, grpc=self.grpc, secured=self._closed)
            return _card_response(request, await self._sealed(card))
        return _card_response(request, own_card(agent))

    def _signed(self, card: tuple[bytes, str]) -> tuple[bytes, str]:
        """A card of ours with its signatures, if there is a key for them."""
        if self._seal is None:
            return card
        body = self._seal.signed(card[0])
        return body, etag_of(body)

    async def _sealed(self, card: tuple[bytes, str]) -> tuple[bytes, str]:
        """The same in a thread: a card with hundreds of skills takes a tenth of a second."""
        return card if self._seal is None else await asyncio.to_thread(self._signed, card)

    async def keys(self, request: Request) -> Response:
        """The public key that the broker's cards are signed with (RFC 7517 section 5)."""
        if self._seal is None:
            raise HandoffError(Code.NOT_FOUND)
        card = self._seal.key_set, etag_of(self._seal.key_set)
        return _card_response(request, card, media_type="application/jwk-set+json")


def _card_response(
    request: Request, card: tuple[bytes, str], *, media_type: str = "application/json"
) -> Response:
    """A card with its ETag (A2A 1.0 section 8.6.1)."""
    body, etag = card
    headers = {"ETag": etag, "Cache-Control": CARD_CACHING}
    if _is_named(etag, request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


def _is_named(etag: str, header: str) -> bool:
    """Whether ``If-None-Match`` names a tag: a list, or ``*``, compared weakly (RFC 9110 section 13.1.2)."""
    return any(named.strip().removeprefix("W/") in ("*", etag) for named in header.split(","))
