"""The webhooks of a task: where its owner wants to be told what becomes of it.

Duty: set, show and remove them, within their limits and at addresses that may be called.
Rules: several for each task, each with an id, the client's or one made here; before 1.0 a task has at most
one that was given none. One that is set is told what happens from then on; on a task that has ended, its end.
One that is set again goes on where it was.
Not here: who may do it (``broker``), telling them (``courier``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing

from msgspec.structs import replace

from a2a_handoff.core.agents import Generation
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.core.events import WorkKind
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.journal import Journal
from a2a_handoff.ledger import Ledger
from a2a_handoff.ports import Clock, Store, UrlPolicy, Webhook, WorkKey
from a2a_handoff.wire.push import webhook_of


class Webhooks:
    """Keeps the webhooks of tasks. ``most`` is how many one task may have."""

    def __init__(
        self, *, store: Store, ledger: Ledger, journal: Journal, policy: UrlPolicy, clock: Clock, most: int
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._journal = journal
        self._policy = policy
        self._clock = clock
        self._most = most
        self._setting = asyncio.Lock()

    async def prepare(self, config: bytes, generation: Generation, *, field: str) -> Webhook:
        """The webhook that a checked 1.0 configuration asks for, for a task that it does not name yet.

        ``field`` is where its URL stands in the request. Raises ``HandoffError`` (``invalid_params``) if
        that may not be called.
        """
        webhook = webhook_of(config, generation, edition=self._clock.new_id(), created_at=self._clock.now())
        try:
            await self._policy.vet(webhook.url)
        except HandoffError:
            fault = "is not an address that the broker may call"
            raise HandoffError(
                Code.INVALID_PARAMS,
                f"Invalid parameters: {field} {fault}.",
                violations=(Violation(field, fault),),
            ) from None
        return webhook

    async def add(
        self, handoff: Handoff, webhook: Webhook, *, task_id: str, since: Mapping[str, int] | None = None
    ) -> Webhook:
        """Set a prepared webhook on a task that its client knows as ``task_id``.

        It is told what came after the versions in ``since``; ``None``: after those of now. Raises
        ``HandoffError`` (``invalid_params``) if the task has as many as it may have.
        """
        async with self._setting:
            webhook = named(webhook, handoff_id=handoff.id, task_id=task_id)
            known = {one.id: one for one in await self._store.list_webhooks(handoff.id)}
            former = known.get(webhook.id)
            if former is None and len(known) >= self._most:
                raise HandoffError(
                    Code.INVALID_PARAMS,
                    f"The task has {len(known)} push notification configurations, and may have no more; "
                    "delete one of them.",
                )
            taken = 0
            if former is not None:
                told = former.told
                taken = former.taken if former.generation is webhook.generation else 0
            elif since is not None:
                told = dict(since)
            else:
                told = await self._told_by_now(handoff)
            webhook = replace(webhook, told=told, taken=taken)
            settled = () if former is None else (_work_of(former),)
            await self._ledger.attach(webhook, settled=settled)
        return webhook

    async def _told_by_now(self, handoff: Handoff) -> dict[str, int]:
        """The versions that whoever sets a webhook knows of; of an ended task all but its end."""
        if not handoff.state.terminal:
            return await self._journal.versions(handoff)
        versions: dict[str, int] = {}
        async with aclosing(self._journal.follow(handoff.id)) as steps:
            async for step in steps:
                if step is None:
                    break
                if step.after.state.terminal and not step.comes_back(handoff.id):
                    break
                versions[step.after.id] = step.after.version
        return versions

    async def list(self, handoff: Handoff) -> list[Webhook]:
        """The webhooks of a task, the oldest first."""
        found = await self._store.list_webhooks(handoff.id)
        return sorted(found, key=lambda webhook: (webhook.created_at, webhook.id))

    async def get(self, handoff: Handoff, webhook_id: str) -> Webhook:
        """One webhook; the oldest if the id is empty. Raises ``task_not_found`` (A2A 1.0 section 3.1.8)."""
        for webhook in await self.list(handoff):
            if webhook_id in ("", webhook.id):
                return webhook
        raise HandoffError(
            Code.TASK_NOT_FOUND,
            f"The task has no push notification configuration {webhook_id[:64]!r}."
            if webhook_id
            else "The task has no push notification configuration.",
        )

    async def remove(self, handoff: Handoff, webhook_id: str) -> None:
        """Remove a webhook. That there is none is no fault (A2A 1.0 section 3.1.10)."""
        await self._store.delete_webhook(handoff.id, webhook_id)


def named(webhook: Webhook, *, handoff_id: str, task_id: str) -> Webhook:
    """A prepared webhook as one of a task, which its client knows as ``task_id``.

    Without an id it has that of the task: so before 1.0 there is one that needs none, and is set anew.
    """
    return replace(webhook, handoff_id=handoff_id, task_id=task_id, id=webhook.id or handoff_id)


def _work_of(webhook: Webhook) -> WorkKey:
    return WorkKey(handoff_id=webhook.handoff_id, kind=WorkKind.WEBHOOK, ref=webhook.edition)
