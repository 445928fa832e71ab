"""``ports.Store`` in memory: plain dicts, no threads, the same contract.

``MemoryData`` is what survives a restart: give it to the next ``MemoryStore``. ``available = False``
makes every call raise ``StoreUnavailable``, as a full disk does.
"""

from __future__ import annotations

import asyncio
import bisect
import secrets
from collections import Counter
from dataclasses import dataclass, field

from msgspec.structs import replace

from a2a_handoff import ports
from a2a_handoff.core.agents import Agent
from a2a_handoff.core.events import Drop, Schedule, State, WorkKind
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.ports import (
    SECRET_BYTES,
    Broadcast,
    BroadcastPage,
    Chain,
    ChainTaken,
    Commit,
    Committed,
    DuplicateRequest,
    HandoffPage,
    HandoffQuery,
    Late,
    Recorded,
    RequestKey,
    SlotConflict,
    StoreUnavailable,
    Usage,
    VersionConflict,
    Webhook,
    Work,
    WorkKey,
)


@dataclass
class Item:
    """A work item. ``owner`` is the store that holds it until ``lease_until``."""

    due_at: float
    owner: MemoryStore | None = None
    lease_until: float = 0.0
    claims: int = 0
    orphaned: bool = False

    @property
    def wake_at(self) -> float:
        return self.due_at if self.owner is None else self.lease_until


@dataclass
class MemoryData:
    """All that is durable."""

    log: list[Recorded] = field(default_factory=list)
    log_end: int = 0
    handoffs: dict[str, Handoff] = field(default_factory=dict)
    chains: dict[str, Chain] = field(default_factory=dict)
    requests: dict[tuple[str, str, str], RequestKey] = field(default_factory=dict)
    aliases: dict[tuple[str, str, str], str] = field(default_factory=dict)
    work: dict[WorkKey, Item] = field(default_factory=dict)
    agents: dict[tuple[str, str], Agent] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    secrets: dict[str, bytes] = field(default_factory=dict)
    webhooks: dict[tuple[str, str], Webhook] = field(default_factory=dict)
    broadcasts: list[Broadcast] = field(default_factory=list)
    broadcast_end: int = 0


class MemoryStore:
    """A store that forgets when its ``MemoryData`` goes."""

    def __init__(self, data: MemoryData | None = None, *, lease_s: float = 30.0) -> None:
        self.data = data or MemoryData()
        self.available = False
        self._lease_s = lease_s

    async def open(self) -> None:
        for item in self.data.work.values():
            if item.owner is not None:
                item.owner, item.orphaned = None, True
        self.available = True

    async def close(self) -> None:
        self.available = False

    async def _turn(self) -> MemoryData:
        """Let others run, as a real store does."""
        await asyncio.sleep(0)
        if not self.available:
            raise StoreUnavailable("The store in memory is not available.")
        return self.data

    # --- writing ---------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> asyncio.Future[Committed]:
        # Taken in when it is called, in the order of the calls, not when it is awaited.
        self._check_form(commit)
        return asyncio.ensure_future(self._commit(commit))

    async def _commit(self, commit: Commit) -> Committed:
        data = await self._turn()
        alias = self._check(data, commit)
        if commit.request_key is not None:
            key = commit.request_key
            data.requests[key.tenant, key.sender, key.key] = key
        if alias is not None:
            data.aliases[alias[0]] = alias[1]
        for webhook in commit.webhooks:
            data.webhooks[webhook.handoff_id, webhook.id] = webhook
        for settled in commit.settled:
            data.work.pop(settled, None)
        recorded: list[Recorded] = []
        new_chains: set[str] = set()
        scheduled: dict[WorkKey, None] = {}
        for write in commit.writes:
            handoff = write.handoff
            data.handoffs[handoff.id] = handoff
            if write.expected_version == 0 and handoff.correlation_id not in data.chains:
                new_chains.add(handoff.id)
                data.chains[handoff.correlation_id] = Chain(
                    tenant=handoff.tenant,
                    correlation_id=handoff.correlation_id,
                    trace_id=handoff.trace.trace_id,
                    first_handoff_id=handoff.id,
                    started_at=handoff.created_at,
                )
            for seq, event in enumerate(write.events, start=write.expected_version + 1):
                data.log_end += 1
                one = Recorded(handoff_id=handoff.id, seq=seq, position=data.log_end, event=event)
                data.log.append(one)
                recorded.append(one)
            for action in write.actions:
                match action:
                    case Schedule():
                        key = WorkKey(
                            handoff_id=handoff.id, kind=action.kind, attempt=action.attempt, ref=action.ref
                        )
                        data.work[key] = Item(action.due_at)
                        scheduled[key] = None
                    case Drop(kinds=kinds):
                        for key in [key for key in data.work if key.handoff_id == handoff.id]:
                            if key.kind in kinds or (not kinds and key.kind is not WorkKind.WEBHOOK):
                                del data.work[key]
        claimed = [
            self._claim(key, data.work[key], commit.now)
            for key in scheduled
            if key in data.work and data.work[key].due_at <= commit.now
        ]
        return Committed(recorded=tuple(recorded), claimed=tuple(claimed), new_chains=frozenset(new_chains))

    @staticmethod
    def _check_form(commit: Commit) -> None:
        if commit.alias and not any(write.expected_version == 0 for write in commit.writes):
            raise ValueError("An alias needs a new handoff in the same commit.")
        for write in commit.writes:
            version = write.handoff.version
            if version == 0 or version != write.expected_version + len(write.events):
                raise ValueError("The version is not the number of events.")

    @staticmethod
    def _check(data: MemoryData, commit: Commit) -> tuple[tuple[str, str, str], str] | None:
        """Refuse, or give the alias to keep."""
        if (key := commit.request_key) is not None:
            first = data.requests.get((key.tenant, key.sender, key.key))
            if first is not None:
                raise DuplicateRequest(first.handoff_id, first.digest)
        alias = None
        new = [write.handoff for write in commit.writes if write.expected_version == 0]
        if commit.alias:
            alias = ((new[0].tenant, commit.alias_owner, commit.alias), new[0].id)
            if (taken := data.aliases.get(alias[0])) is not None:
                raise DuplicateRequest(taken, "")
        tenants = {chain.correlation_id: chain.tenant for chain in data.chains.values()}
        for handoff in new:
            if tenants.setdefault(handoff.correlation_id, handoff.tenant) != handoff.tenant:
                raise ChainTaken(handoff.correlation_id)
        versions: dict[str, int] = {}
        for write in commit.writes:
            stored = data.handoffs.get(write.handoff.id)
            version = versions.get(write.handoff.id, 0 if stored is None else stored.version)
            if version != write.expected_version:
                raise VersionConflict(write.handoff.id)
            versions[write.handoff.id] = write.handoff.version
        if commit.slots:
            occupied = Counter((h.tenant, h.occupies) for h in data.handoffs.values())
            full = [occupied[slot.tenant, slot.agent_id] >= slot.limit for slot in commit.slots]
            if (commit.beyond and not all(full)) or (full[0] and not commit.beyond):
                names = (slot.agent_id for slot, is_full in zip(commit.slots, full, strict=True) if is_full)
                raise SlotConflict(frozenset(names))
        return alias

    def _claim(self, key: WorkKey, item: Item, now: float) -> Work:
        item.orphaned = item.orphaned or item.owner is not None
        item.owner, item.lease_until, item.claims = self, now + self._lease_s, item.claims + 1
        return Work(key=key, due_at=item.due_at, claims=item.claims, orphaned=item.orphaned)

    async def claim_work(self, *, now: float, limit: int) -> list[Work]:
        data = await self._turn()
        ready = [key for key, item in data.work.items() if item.wake_at <= now]
        ready.sort(key=lambda key: (data.work[key].wake_at, *_name(key)))
        works = [self._claim(key, data.work[key], now) for key in ready[:limit]]
        return sorted(works, key=lambda work: (work.due_at, *_name(work.key)))

    async def release_work(self, key: WorkKey, *, due_at: float) -> None:
        data = await self._turn()
        item = data.work.get(key)
        if item is not None and item.owner is self:
            item.owner, item.due_at = None, due_at

    async def next_due(self) -> float | None:
        data = await self._turn()
        return min((item.due_at for item in data.work.values() if item.owner is None), default=None)

    async def renew_leases(self, *, now: float) -> None:
        data = await self._turn()
        for item in data.work.values():
            if item.owner is self:
                item.lease_until = now + self._lease_s

    async def put_agent(self, agent: Agent) -> bool:
        data = await self._turn()
        new = (agent.tenant, agent.agent_id) not in data.agents
        data.agents[agent.tenant, agent.agent_id] = agent
        return new

    async def delete_agent(self, tenant: str, agent_id: str) -> bool:
        data = await self._turn()
        return data.agents.pop((tenant, agent_id), None) is not None

    async def set_mark(self, name: str, position: int) -> None:
        data = await self._turn()
        data.marks[name] = position

    async def secret(self, name: str) -> bytes:
        return (await self._turn()).secrets.setdefault(name, secrets.token_bytes(SECRET_BYTES))

    async def prune(self, *, before: float, limit: int) -> list[str]:
        data = await self._turn()
        busy = {key.handoff_id for key in data.work}
        chains: dict[str, list[Handoff]] = {}
        for handoff in data.handoffs.values():
            chains.setdefault(handoff.correlation_id, []).append(handoff)
        old = [
            chain
            for chain, found in chains.items()
            if all(h.state.terminal and h.updated_at < before and h.id not in busy for h in found)
        ][:limit]
        gone = {h.id for chain in old for h in chains[chain]}
        data.log = [one for one in data.log if one.handoff_id not in gone]
        data.requests = {k: v for k, v in data.requests.items() if v.handoff_id not in gone}
        data.aliases = {k: v for k, v in data.aliases.items() if v not in gone}
        data.webhooks = {k: v for k, v in data.webhooks.items() if k[0] not in gone}
        for chain in old:
            del data.chains[chain]
        for handoff_id in gone:
            del data.handoffs[handoff_id]
        return sorted(gone)

    async def add_broadcast(self, broadcast: Broadcast, *, keep: int) -> Broadcast:
        data = await self._turn()
        data.broadcast_end += 1
        stored = replace(broadcast, position=data.broadcast_end)
        alive = [b for b in data.broadcasts if b.expires_at > stored.at]
        same = [b for b in alive if b.tenant == stored.tenant] + [stored]
        data.broadcasts = [b for b in (*alive, stored) if b.tenant != stored.tenant or b in same[-keep:]]
        return stored

    async def save_webhook(self, webhook: Webhook) -> bool:
        data = await self._turn()
        known = data.webhooks.get((webhook.handoff_id, webhook.id))
        if known is None or known.edition != webhook.edition:
            return False
        data.webhooks[webhook.handoff_id, webhook.id] = webhook
        return True

    async def delete_webhook(self, handoff_id: str, webhook_id: str) -> bool:
        data = await self._turn()
        gone = data.webhooks.pop((handoff_id, webhook_id), None)
        if gone is not None:
            key = WorkKey(handoff_id=handoff_id, kind=WorkKind.WEBHOOK, ref=gone.edition)
            data.work.pop(key, None)
        return gone is not None

    # --- reading ---------------------------------------------------------------------------------

    async def load_handoff(self, handoff_id: str) -> Handoff | None:
        return (await self._turn()).handoffs.get(handoff_id)

    async def read_events(self, handoff_id: str, *, after: int = 0, limit: int = 1000) -> list[Recorded]:
        data = await self._turn()
        return [one for one in data.log if one.handoff_id == handoff_id and one.seq > after][:limit]

    async def read_log(self, *, after: int = 0, limit: int = 1000) -> list[Recorded]:
        log = (await self._turn()).log
        begin = bisect.bisect_right(log, after, key=lambda one: one.position)
        return log[begin : begin + limit]

    async def log_end(self) -> int:
        return (await self._turn()).log_end

    async def list_handoffs(self, query: HandoffQuery) -> HandoffPage:
        data = await self._turn()
        found = [handoff for handoff in data.handoffs.values() if _matches(query, handoff)]
        found.sort(key=lambda handoff: (handoff.updated_at, handoff.id), reverse=True)
        rest = [
            handoff
            for handoff in found
            if query.before is None or (handoff.updated_at, handoff.id) < query.before
        ]
        page = rest[: query.limit]
        more = len(rest) > len(page)
        return HandoffPage(
            handoffs=tuple(page),
            next=(page[-1].updated_at, page[-1].id) if more else None,
            total=min(len(found), ports.TOTAL_MAX),
        )

    async def list_open(self, state: State) -> list[Handoff]:
        data = await self._turn()
        found = [h for h in data.handoffs.values() if h.state is state and not state.terminal]
        return sorted(found, key=lambda handoff: (handoff.created_at, handoff.id))

    async def find_request(self, tenant: str, sender: str, key: str) -> RequestKey | None:
        return (await self._turn()).requests.get((tenant, sender, key))

    async def find_alias(self, tenant: str, owner: str, alias: str) -> str | None:
        return (await self._turn()).aliases.get((tenant, owner, alias))

    async def find_chain(self, tenant: str, correlation_id: str) -> Chain | None:
        chain = (await self._turn()).chains.get(correlation_id)
        if chain is not None and chain.tenant != tenant:
            raise ChainTaken(correlation_id)
        return chain

    async def chain_handoffs(self, tenant: str, correlation_id: str) -> list[Handoff]:
        data = await self._turn()
        found = [
            handoff
            for handoff in data.handoffs.values()
            if handoff.tenant == tenant and handoff.correlation_id == correlation_id
        ]
        return sorted(found, key=lambda handoff: (handoff.created_at, handoff.id))

    async def queue(self) -> dict[State, tuple[int, float]]:
        data = await self._turn()
        times: dict[State, list[float]] = {}
        for handoff in data.handoffs.values():
            if not handoff.state.terminal:
                times.setdefault(handoff.state, []).append(handoff.updated_at)
        return {state: (len(found), min(found)) for state, found in times.items()}

    async def late(self, *, now: float) -> dict[Late, tuple[int, float]]:
        found: dict[Late, tuple[int, float]] = {}
        for item in (await self._turn()).work.values():
            if item.wake_at <= now:
                why = Late.DUE if item.owner is None else Late.LAPSED
                count, oldest = found.get(why, (0, item.wake_at))
                found[why] = (count + 1, min(oldest, item.wake_at))
        return found

    def usage(self) -> Usage:
        return Usage()

    async def in_flight(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        data = await self._turn()
        counts: dict[tuple[str, str], int] = {}
        for handoff in data.handoffs.values():
            held = handoff.holder and handoff.state is not State.HANDED_OFF
            if held and tenant in (None, handoff.tenant):
                key = (handoff.tenant, handoff.holder)
                counts[key] = counts.get(key, 0) + 1
        return counts

    async def list_agents(self) -> list[Agent]:
        data = await self._turn()
        return [data.agents[key] for key in sorted(data.agents)]

    async def read_broadcasts(
        self, tenant: str, workspace: str, *, after: int = 0, now: float, limit: int = 100
    ) -> BroadcastPage:
        data = await self._turn()
        found = [
            b
            for b in data.broadcasts
            if (b.tenant, b.workspace) == (tenant, workspace) and b.position > after and b.expires_at > now
        ]
        return BroadcastPage(broadcasts=tuple(found[:limit]), end=data.broadcast_end)

    async def list_webhooks(self, handoff_id: str) -> list[Webhook]:
        data = await self._turn()
        found = [webhook for key, webhook in data.webhooks.items() if key[0] == handoff_id]
        return sorted(found, key=lambda webhook: webhook.id)

    async def get_mark(self, name: str) -> int | None:
        return (await self._turn()).marks.get(name)


def _name(key: WorkKey) -> tuple[str, str, int, str]:
    return key.handoff_id, str(key.kind), key.attempt, key.ref


def _matches(query: HandoffQuery, handoff: Handoff) -> bool:
    return (
        handoff.tenant == query.tenant
        and (not query.sender or handoff.sender == query.sender)
        and (not query.agent or query.agent in (handoff.sender, handoff.holder))
        and (not query.holder or handoff.holder == query.holder)
        and (not query.face or handoff.face == query.face)
        and (not query.states or handoff.state in query.states)
        and (not query.correlation_id or handoff.correlation_id == query.correlation_id)
        and (not query.context_id or handoff.context_id == query.context_id)
        and (query.updated_after is None or handoff.updated_at >= query.updated_after)
    )
