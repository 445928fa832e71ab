"""Messages to all agents of a workspace.

Duty: take a broadcast in, keep it for those who come later, tell an agent what it has not heard.
Rules: nobody hears itself, and who opted out hears nothing. A broadcast is no handoff: nobody answers for
it, it expires, and what an agent does not fetch in time is gone. A cursor of another store, or from beyond
its end, starts from the beginning: what is heard twice does less harm than a wait for ever.
Not here: waiting for the next one together with offers (``inbox``).
"""

from __future__ import annotations

import msgspec

from a2a_handoff.core.agents import Agent, fold
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.core.matching import DEFAULT_WORKSPACE
from a2a_handoff.core.text import is_blank, name_fault
from a2a_handoff.ports import Broadcast, Clock, Notifier, Principal, Scope, Store, StoreUnavailable
from a2a_handoff.registry import NEWS_TOPIC, Registry, speaks_for_itself
from a2a_handoff.wire.cursor import Cursor, mark, read_cursor, written

MESSAGE_BYTES_MAX = 16_384
DATA_BYTES_MAX = 65_536
#: Of each tenant; the oldest goes for the next.
BROADCASTS_MAX = 10_000
PAGE = 100

#: Published when another broker on the store stored a broadcast, whichever workspace it is for.
BROADCASTS_TOPIC = "broadcasts"

_EPOCH_MARK = "epoch"
_EPOCHS = 1 << 52


def broadcast_topic(tenant: str, workspace: str) -> str:
    """Wakes those who wait for what a workspace is told."""
    return f"broadcasts:{tenant}:{workspace}"


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What was said since a cursor, oldest first, and the cursor after it.

    ``resync``: the cursor that was given means nothing here, so this starts from the beginning.
    """

    broadcasts: tuple[Broadcast, ...]
    cursor: str
    resync: bool = False


class Broadcasts:
    """Takes broadcasts in and reads them on. ``keep_s``: how long one is kept, in seconds."""

    def __init__(
        self, *, store: Store, registry: Registry, notifier: Notifier, clock: Clock, keep_s: float
    ) -> None:
        self._store = store
        self._registry = registry
        self._notifier = notifier
        self._clock = clock
        self._keep_s = keep_s
        self.epoch = 0
        """Names the store: a cursor of another one means nothing in it."""

    async def open(self) -> None:
        """Learn the name of the store, or give it one. Raises ``StoreUnavailable``."""
        epoch = await self._store.get_mark(_EPOCH_MARK)
        if epoch is None:
            # Brokers that start together on an empty store give it one name.
            epoch = 1 + int.from_bytes(await self._store.secret(_EPOCH_MARK)) % _EPOCHS
            await self._store.set_mark(_EPOCH_MARK, epoch)
        self.epoch = epoch

    async def send(
        self,
        principal: Principal,
        *,
        channel: str,
        message: str,
        data: bytes = b"",
        sender: str = "",
        workspace: str = "",
    ) -> Broadcast:
        """Tell every agent of a workspace: the one that is named, else the sender's own.

        Raises ``HandoffError``: ``invalid_params``, ``payload_too_large``, ``forbidden``, ``unavailable``.
        """
        principal.require(Scope.WORK)
        sender = self._sender(principal, sender)
        agent = self._registry.get(principal.tenant, sender)
        if agent is not None:
            self._registry.presence.called(principal, agent.agent_id)
        workspace = workspace or (agent.workspace if agent is not None else DEFAULT_WORKSPACE)
        _check(channel, message, data, workspace)
        now = self._clock.now()
        broadcast = Broadcast(
            id=self._clock.new_id(),
            tenant=principal.tenant,
            workspace=workspace,
            channel=channel,
            sender=sender,
            message=message,
            data=data,
            at=now,
            expires_at=now + self._keep_s,
        )
        try:
            stored = await self._store.add_broadcast(broadcast, keep=BROADCASTS_MAX)
        except StoreUnavailable as error:
            raise HandoffError(Code.UNAVAILABLE, retry_after_s=1.0) from error
        self._notifier.wake(broadcast_topic(stored.tenant, stored.workspace))
        self._notifier.tell(NEWS_TOPIC)
        return stored

    def _sender(self, principal: Principal, said: str) -> str:
        said = self._registry.spelled(principal.tenant, said or principal.name)
        if said and not speaks_for_itself(principal, said):
            raise HandoffError(Code.FORBIDDEN, f"You are {principal.name!r}, not {said[:64]!r}.")
        fault = name_fault(said)
        if fault:
            raise _wrong("source_agent", fault)
        return said

    async def read(
        self, principal: Principal, *, agent_id: str = "", workspace: str = "", after: str = ""
    ) -> Heard:
        """What was said since the cursor ``after``, without one everything that is kept.

        With ``agent_id`` as that agent hears it. Raises ``HandoffError``: ``invalid_params``, and
        ``agent_not_found`` for an agent that is not the caller's.
        """
        agent = self._registry.get(principal.tenant, agent_id) if agent_id else None
        if agent is not None:
            if not speaks_for_itself(principal, agent.agent_id):
                raise HandoffError(Code.AGENT_NOT_FOUND, f"There is no agent {agent_id[:64]!r} of yours.")
            self._registry.presence.called(principal, agent.agent_id)
        workspace = workspace or (agent.workspace if agent is not None else DEFAULT_WORKSPACE)
        owner = mark(principal.tenant, workspace)
        given = read_cursor(after) if after else Cursor(epoch=self.epoch, owner=owner)
        known = (given.epoch, given.owner) == (self.epoch, owner)
        if agent is not None and not agent.broadcasts:
            return Heard(
                broadcasts=(), cursor=written(Cursor(epoch=self.epoch, owner=owner)), resync=not known
            )
        found, position, beyond = await self._on(
            principal.tenant, workspace, agent_id, given.position if known else 0
        )
        cursor = Cursor(epoch=self.epoch, owner=owner, position=position)
        return Heard(broadcasts=found, cursor=written(cursor), resync=beyond or not known)

    async def since(self, agent: Agent, position: int) -> tuple[tuple[Broadcast, ...], int, bool]:
        """What an agent has not heard after ``position``, up to where that is, and whether it starts anew.

        It does if the position lies beyond the end.
        """
        if not agent.broadcasts:
            return (), position, False
        return await self._on(agent.tenant, agent.workspace, agent.agent_id, position)

    async def _on(
        self, tenant: str, workspace: str, hearer: str, position: int
    ) -> tuple[tuple[Broadcast, ...], int, bool]:
        beyond = False
        while True:
            page = await self._store.read_broadcasts(
                tenant, workspace, after=position, now=self._clock.now(), limit=PAGE
            )
            if position > page.end:
                position, beyond = 0, True
                continue
            read = page.broadcasts
            heard = tuple(b for b in read if not hearer or fold(b.sender) != fold(hearer))
            position = read[-1].position if read else position
            if heard or len(read) < PAGE:
                return heard, position, beyond


def _check(channel: str, message: str, data: bytes, workspace: str) -> None:
    for field, name in (("channel", channel), ("workspace", workspace)):
        fault = name_fault(name) or ("is missing" if not name else "")
        if fault:
            raise _wrong(field, fault)
    if is_blank(message):
        raise _wrong("message", "is blank")
    for field, size, most in (
        ("message", len(message.encode()), MESSAGE_BYTES_MAX),
        ("data", len(data), DATA_BYTES_MAX),
    ):
        if size > most:
            raise HandoffError(
                Code.PAYLOAD_TOO_LARGE,
                f"{field} has {size} bytes, at most {most} are taken: broadcast a link to what is larger.",
                violations=(Violation(field, f"is larger than {most} bytes"),),
                facts={"limit_bytes": str(most)},
            )


def _wrong(field: str, fault: str) -> HandoffError:
    return HandoffError(Code.INVALID_PARAMS, f"{field} {fault}.", violations=(Violation(field, fault),))
