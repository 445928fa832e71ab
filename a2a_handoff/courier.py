"""Tells webhooks what becomes of tasks.

Duty: one run for each webhook: read the log of its task from the first event on, send what it was not told,
in order, and keep how far it is, up to the last event of the task.
Rules: the log is the outbox; beside the log there is only how far each webhook was told. A notification is
sent until it is taken, so one may come twice, under the same id. One webhook waits for no other. What is
refused for good, or not taken for too long, is given up for all to see. Secrets and addresses, which may
hold some, are not logged.
Sources: A2A 1.0 sections 3.5.2, 4.3.3 and 13.2; RFC 9110 section 15.
Not here: when it is done (``dispatcher``), what is written (``wire.push``), HTTP (``client.webhooks``).
"""

from __future__ import annotations

import logging
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from a2a_handoff.journal import Journal, Step
from a2a_handoff.ports import (
    AgentError,
    Clock,
    HookAnswer,
    HookClient,
    Notified,
    Recorder,
    Sent,
    Store,
    Webhook,
    WebhookState,
)
from a2a_handoff.wire.push import NotificationWriter, notification_headers

_LOG = logging.getLogger("a2a_handoff.webhooks")

#: How often a run that waits for an event looks whether its webhook is still there.
_LOOK_S = 300.0
#: A run that a stopping broker leaves is not taken up again before it has stopped.
_STOPPING_S = 1.0

_GONE = 410
#: Client errors that pass: the request took too long, there were too many (RFC 9110, RFC 6585).
_PASSING = frozenset({408, 429})


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a webhook is waited for, in seconds.

    ``timeout_s`` bounds one call, ``retry_s`` is the wait after the first failure, which doubles up to
    ``retry_max_s``; a notification that was not taken for ``give_up_s`` is the last that is tried.
    """

    timeout_s: float = 10.0
    retry_s: float = 1.0
    retry_max_s: float = 300.0
    give_up_s: float = 86_400.0


class _Ended(Exception):
    """A run ends here, to begin again in ``again_s`` seconds; ``None``: never."""

    def __init__(self, again_s: float | None) -> None:
        self.again_s = again_s
        super().__init__(again_s)


class Courier:
    """Makes the runs."""

    def __init__(
        self,
        *,
        store: Store,
        journal: Journal,
        client: HookClient,
        recorder: Recorder,
        clock: Clock,
        patience: Patience,
    ) -> None:
        self._store = store
        self._journal = journal
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._patience = patience
        self._at: set[str] = set()

    def is_at(self, edition: str) -> bool:
        """Whether a run for this edition of a webhook is under way here."""
        return edition in self._at

    async def run(self, handoff_id: str, edition: str) -> float | None:
        """Tell a webhook what it was not told so far, then what is to come, to the end of its task.

        ``None`` when there is nothing left to tell, or nobody to be told; else in how many seconds to run
        again. Raises ``StoreUnavailable``.
        """
        self._at.add(edition)
        try:
            await self._run(handoff_id, edition)
        except _Ended as ended:
            return ended.again_s
        finally:
            self._at.discard(edition)
        return _STOPPING_S

    async def _run(self, handoff_id: str, edition: str) -> None:
        webhook = await self._find(handoff_id, edition)
        told = webhook.told
        writer = NotificationWriter(webhook.generation, webhook.task_id)
        async with aclosing(self._journal.follow(handoff_id, quiet_s=_LOOK_S)) as steps:
            async for step in steps:
                if step is None:
                    await self._find(handoff_id, edition)
                    continue
                # Also what was told is written again: later notifications follow from it.
                bodies = writer.write(step.before, step.event, step.after)
                if step.comes_back(handoff_id):
                    continue
                new = step.after.version > told.get(step.after.id, 0)
                over = step.after.state.terminal
                if over or (new and bodies):
                    if self._journal.closing:
                        return
                    webhook = await self._find(handoff_id, edition)
                    await self._tell(webhook, step, bodies if new else [], over=over)

    async def _find(self, handoff_id: str, edition: str) -> Webhook:
        """The webhook as it stands. Ends the run if it was removed, set anew, or needs nothing more."""
        for webhook in await self._store.list_webhooks(handoff_id):
            if webhook.edition == edition and webhook.state is WebhookState.ACTIVE:
                return webhook
        raise _Ended(None)

    async def _tell(self, webhook: Webhook, step: Step, bodies: list[bytes], *, over: bool) -> None:
        """Send what one event brings, and keep that it was sent. Ends the run with the task."""
        after = step.after
        for number in range(webhook.taken, len(bodies)):
            webhook = await self._send(webhook, f"{after.id}-{after.version}-{number}", bodies[number])
        webhook = replace(webhook, told=webhook.told | {after.id: after.version}, taken=0)
        if over:
            webhook = replace(webhook, state=WebhookState.DONE)
        if not await self._store.save_webhook(webhook) or over:
            raise _Ended(None)

    async def _send(self, webhook: Webhook, notification_id: str, body: bytes) -> Webhook:
        """Send one notification. Ends the run if it was not taken."""
        headers = notification_headers(webhook, notification_id)
        try:
            answer = await self._client.post(webhook.url, headers, body, timeout_s=self._patience.timeout_s)
        except AgentError as error:
            unfit = error.sent is Sent.NO and not error.again
            raise await self._failed(webhook, error.detail, HookAnswer(status=0), for_good=unfit) from None
        if 200 <= answer.status < 300:
            self._recorder.notified(Notified.TAKEN)
            return replace(
                webhook,
                taken=webhook.taken + 1,
                delivered=webhook.delivered + 1,
                failures=0,
                failing_since=0.0,
                last_at=self._clock.now(),
                status=answer.status,
                error="",
            )
        if answer.status == _GONE:
            self._recorder.notified(Notified.REMOVED)
            _LOG.info("a webhook is gone, and was removed", extra=_named(webhook))
            await self._store.delete_webhook(webhook.handoff_id, webhook.id)
            raise _Ended(None)
        refused = 400 <= answer.status < 500 and answer.status not in _PASSING
        raise await self._failed(webhook, f"HTTP {answer.status}", answer, for_good=refused)

    async def _failed(self, webhook: Webhook, error: str, answer: HookAnswer, *, for_good: bool) -> _Ended:
        """Keep that a notification was not taken; when the run is to begin again."""
        now = self._clock.now()
        since = webhook.failing_since or now
        lost = for_good or now - since >= self._patience.give_up_s
        self._recorder.notified(Notified.GIVEN_UP if lost else Notified.FAILED)
        webhook = replace(
            webhook,
            failures=webhook.failures + 1,
            failing_since=since,
            last_at=now,
            status=answer.status,
            error=error,
            state=WebhookState.GIVEN_UP if lost else webhook.state,
        )
        if not await self._store.save_webhook(webhook):
            return _Ended(None)
        if lost:
            tries = "1 try" if webhook.failures == 1 else f"{webhook.failures} tries"
            _LOG.warning("a webhook was given up after %s: %s", tries, error, extra=_named(webhook))
            return _Ended(None)
        return _Ended(self._wait_s(webhook.failures, answer.retry_after_s))

    def _wait_s(self, failures: int, asked_s: float | None) -> float:
        """The wait before the next try: it doubles, with half of it left to chance, within its limit."""
        patience = self._patience
        grown = min(patience.retry_s * 2 ** min(failures - 1, 32), patience.retry_max_s)
        wait_s = grown * (1 + self._clock.jitter()) / 2
        return wait_s if asked_s is None else min(max(wait_s, asked_s), patience.retry_max_s)


def _named(webhook: Webhook) -> dict[str, str]:
    return {"handoff_id": webhook.handoff_id, "webhook_id": webhook.id}
