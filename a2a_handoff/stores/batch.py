"""Many commits, one transaction: which are refused, and which rows the others write.

Duty: check each commit of a batch against what is stored and what the commits before it wrote, and
gather the rows of those that pass, so that a store writes each table with one statement.
Rules: a refused commit leaves no trace and refuses no other. No database here: what a store must know
comes in as ``Known``, rows go out as plain tuples.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from a2a_handoff.core.events import Drop, Schedule, WorkKind
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.ports import (
    ChainTaken,
    Commit,
    Committed,
    DuplicateRequest,
    HandoffWrite,
    Recorded,
    SlotConflict,
    VersionConflict,
    Work,
    WorkKey,
)
from a2a_handoff.stores.codec import encode_event, encode_handoff, encode_webhook

#: (tenant, sender, key), or (tenant, owner, alias)
OwnKey = tuple[str, str, str]
#: (tenant, agent_id)
AgentKey = tuple[str, str]
#: (handoff_id, kind, attempt, ref)
WorkId = tuple[str, str, int, str]
#: (position, handoff_id, seq, type, body)
EventRow = tuple[int, str, int, str, bytes]
#: (id, tenant, sender, correlation_id, context_id, created_at, updated_at, version, state, open, holder,
#: face, snapshot)
HandoffRow = tuple[str, str, str, str, str, float, float, int, str, int, str, str, bytes]
#: (correlation_id, tenant, trace_id, first_handoff_id, started_at)
ChainRow = tuple[str, str, str, str, float]
#: (handoff_id, kind, attempt, ref, due_at, wake_at, owner, claims, orphaned)
WorkRow = tuple[str, str, int, str, float, float, str, int, int]
#: (handoff_id, id, edition, body)
WebhookRow = tuple[str, str, str, bytes]

_WEBHOOK = WorkKind.WEBHOOK.value


class Prepared(msgspec.Struct, frozen=True):
    """A commit with everything encoded, so that a value that cannot be stored fails its caller alone."""

    commit: Commit
    bodies: tuple[tuple[tuple[str, bytes], ...], ...]
    rows: tuple[HandoffRow, ...]
    webhooks: tuple[WebhookRow, ...]
    size: int


def prepare(commit: Commit) -> Prepared:
    """Encode a commit.

    Raises ``ValueError`` if the commit contradicts itself, and ``UnicodeEncodeError`` on text that is
    not Unicode.
    """
    if commit.alias and not any(write.expected_version == 0 for write in commit.writes):
        raise ValueError("An alias needs a new handoff in the same commit.")
    for write in commit.writes:
        if write.handoff.version != write.expected_version + len(write.events) or not write.handoff.version:
            raise ValueError(
                f"Handoff {write.handoff.id} has version {write.handoff.version} after "
                f"{write.expected_version} + {len(write.events)} events."
            )
    bodies = tuple(tuple(map(encode_event, write.events)) for write in commit.writes)
    rows = tuple(map(_handoff_row, commit.writes))
    webhooks = tuple((one.handoff_id, one.id, one.edition, encode_webhook(one)) for one in commit.webhooks)
    size = sum(len(body) for write in bodies for _, body in write) + sum(len(row[-1]) for row in rows)
    return Prepared(commit, bodies, rows, webhooks, size)


def _handoff_row(write: HandoffWrite) -> HandoffRow:
    handoff = write.handoff
    return (
        handoff.id,
        handoff.tenant,
        handoff.sender,
        handoff.correlation_id,
        handoff.context_id,
        handoff.created_at,
        handoff.updated_at,
        handoff.version,
        str(handoff.state),
        0 if handoff.state.terminal else 1,
        handoff.holder,
        handoff.face,
        encode_handoff(handoff),
    )


@dataclass(slots=True)
class Known:
    """What is stored, of all that a batch touches, before it; then also what the batch adds.

    ``versions`` by handoff id, ``requests`` with handoff id and digest, ``chains`` with the tenant by
    correlation id. ``held``: how many open handoffs occupy an agent that a slot is asked of; ``occupied``:
    whom the handoffs that are touched occupy. Both are needed only if a slot is asked for.
    """

    versions: dict[str, int] = field(default_factory=dict[str, int])
    requests: dict[OwnKey, tuple[str, str]] = field(default_factory=dict[OwnKey, tuple[str, str]])
    aliases: dict[OwnKey, str] = field(default_factory=dict[OwnKey, str])
    chains: dict[str, str] = field(default_factory=dict[str, str])
    held: dict[AgentKey, int] = field(default_factory=dict[AgentKey, int])
    occupied: dict[str, AgentKey] = field(default_factory=dict[str, AgentKey])


@dataclass(slots=True)
class Touched:
    """What a store must look up before it can say which commits of a batch are refused."""

    handoffs: set[str] = field(default_factory=set[str])
    chains: set[str] = field(default_factory=set[str])
    requests: set[OwnKey] = field(default_factory=set[OwnKey])
    aliases: set[OwnKey] = field(default_factory=set[OwnKey])
    agents: set[AgentKey] = field(default_factory=set[AgentKey])


def touched(commits: Iterable[Prepared]) -> Touched:
    """All that the commits touch."""
    found = Touched()
    for prepared in commits:
        commit = prepared.commit
        for write in commit.writes:
            handoff = write.handoff
            found.handoffs.add(handoff.id)
            if write.expected_version == 0:
                if handoff.correlation_id != handoff.id:  # named after a new handoff a chain is new too
                    found.chains.add(handoff.correlation_id)
                if commit.alias:
                    found.aliases.add((handoff.tenant, commit.alias_owner, commit.alias))
        if (request := commit.request_key) is not None:
            found.requests.add((request.tenant, request.sender, request.key))
        found.agents.update((slot.tenant, slot.agent_id) for slot in commit.slots)
    return found


class Batch:
    """The rows of one transaction, in the making.

    Work is written in the order: ``void_*`` are deleted (that of webhooks by its key only), then ``work``
    is put in, replacing what is there. ``owner`` holds what is due at once until ``lease_s`` after the
    commit.
    """

    def __init__(self, known: Known, *, position: int, owner: str, lease_s: float) -> None:
        self.known = known
        self.position = position
        self.events: list[EventRow] = []
        self.handoffs: dict[str, HandoffRow] = {}
        self.chains: list[ChainRow] = []
        self.requests: list[tuple[str, str, str, str, str]] = []
        self.aliases: list[tuple[str, str, str, str]] = []
        self.webhooks: list[WebhookRow] = []
        self.void_handoffs: set[str] = set()
        self.void_kinds: set[tuple[str, str]] = set()
        self.void_keys: set[WorkId] = set()
        self.size = 0
        self._work: dict[str, dict[tuple[str, int, str], WorkRow]] = {}
        self._owner = owner
        self._lease_s = lease_s

    @property
    def work(self) -> list[WorkRow]:
        """The items to put in."""
        return [row for rows in self._work.values() for row in rows.values()]

    def answer(
        self, prepared: Prepared
    ) -> Committed | DuplicateRequest | ChainTaken | VersionConflict | SlotConflict:
        """Take one commit in, or give the refusal."""
        try:
            return self.add(prepared)
        except (DuplicateRequest, ChainTaken, VersionConflict, SlotConflict) as refusal:
            return refusal

    def add(self, prepared: Prepared) -> Committed:
        """Take one commit in.

        Raises ``DuplicateRequest``, ``ChainTaken``, ``VersionConflict`` or ``SlotConflict``, in this order,
        and then the batch is as it was.
        """
        commit = prepared.commit
        alias = self._alias_of(commit)
        self._check_request(commit, alias)
        self._check_chains(commit)
        self._check_versions(commit)
        self._check_slots(commit)

        known = self.known
        self.size += prepared.size
        if (request := commit.request_key) is not None:
            key = (request.tenant, request.sender, request.key)
            known.requests[key] = (request.handoff_id, request.digest)
            self.requests.append((*key, request.digest, request.handoff_id))
        if alias is not None:
            known.aliases[alias[:3]] = alias[3]
            self.aliases.append(alias)
        self.webhooks += prepared.webhooks
        for settled in commit.settled:
            self._settle(settled)
        recorded: list[Recorded] = []
        new_chains: list[str] = []
        for write, bodies, row in zip(commit.writes, prepared.bodies, prepared.rows, strict=True):
            handoff = write.handoff
            if write.expected_version == 0 and handoff.correlation_id not in known.chains:
                known.chains[handoff.correlation_id] = handoff.tenant
                new_chains.append(handoff.id)
                self.chains.append(
                    (
                        handoff.correlation_id,
                        handoff.tenant,
                        handoff.trace.trace_id,
                        handoff.id,
                        handoff.created_at,
                    )
                )
            known.versions[handoff.id] = handoff.version
            if known.held:
                self._occupy(handoff)
            self.handoffs[handoff.id] = row
            seq = write.expected_version
            for event, (kind, body) in zip(write.events, bodies, strict=True):
                seq += 1
                self.position += 1
                self.events.append((self.position, handoff.id, seq, kind, body))
                recorded.append(Recorded(handoff_id=handoff.id, seq=seq, position=self.position, event=event))
            self._act(write, commit.now)
        return Committed(
            recorded=tuple(recorded), claimed=self._claimed(commit), new_chains=frozenset(new_chains)
        )

    def _check_request(self, commit: Commit, alias: tuple[str, str, str, str] | None) -> None:
        if (request := commit.request_key) is not None:
            first = self.known.requests.get((request.tenant, request.sender, request.key))
            if first is not None:
                raise DuplicateRequest(*first)
        if alias is not None and (taken := self.known.aliases.get(alias[:3])) is not None:
            raise DuplicateRequest(taken, "")

    def _check_chains(self, commit: Commit) -> None:
        own: dict[str, str] = {}
        for write in commit.writes:
            if write.expected_version == 0:
                handoff = write.handoff
                chain = handoff.correlation_id
                tenant = self.known.chains.get(chain)
                if tenant is None:
                    tenant = own.setdefault(chain, handoff.tenant)
                if tenant != handoff.tenant:
                    raise ChainTaken(chain)

    def _check_versions(self, commit: Commit) -> None:
        own: dict[str, int] = {}
        for write in commit.writes:
            handoff = write.handoff
            stored = own.get(handoff.id)
            if stored is None:
                stored = self.known.versions.get(handoff.id, 0)
            if stored != write.expected_version:
                raise VersionConflict(handoff.id)
            own[handoff.id] = handoff.version

    def _check_slots(self, commit: Commit) -> None:
        if not commit.slots:
            return
        held = self.known.held
        full = [slot for slot in commit.slots if held[slot.tenant, slot.agent_id] >= slot.limit]
        fits = len(full) == len(commit.slots) if commit.beyond else commit.slots[0] not in full
        if not fits:
            raise SlotConflict(frozenset(slot.agent_id for slot in full))

    def _occupy(self, handoff: Handoff) -> None:
        """Count where a handoff goes to, and where it was."""
        held, occupied = self.known.held, self.known.occupied
        before = occupied.pop(handoff.id, None)
        if before in held:
            held[before] -= 1
        if handoff.occupies:
            after = occupied[handoff.id] = (handoff.tenant, handoff.occupies)
            if after in held:
                held[after] += 1

    def _alias_of(self, commit: Commit) -> tuple[str, str, str, str] | None:
        if not commit.alias:
            return None
        new = next(write.handoff for write in commit.writes if write.expected_version == 0)
        return new.tenant, commit.alias_owner, commit.alias, new.id

    def _settle(self, key: WorkKey) -> None:
        kind = str(key.kind)
        self._work.get(key.handoff_id, {}).pop((kind, key.attempt, key.ref), None)
        self.void_keys.add((key.handoff_id, kind, key.attempt, key.ref))

    def _act(self, write: HandoffWrite, now: float) -> None:
        handoff_id = write.handoff.id
        stored = write.expected_version > 0
        pending = self._work.setdefault(handoff_id, {}) if write.actions else {}
        for action in write.actions:
            match action:
                case Schedule():
                    kind = str(action.kind)
                    held = action.due_at <= now
                    pending[kind, action.attempt, action.ref] = (
                        handoff_id,
                        kind,
                        action.attempt,
                        action.ref,
                        action.due_at,
                        now + self._lease_s if held else action.due_at,
                        self._owner if held else "",
                        1 if held else 0,
                        0,
                    )
                case Drop(kinds=kinds) if kinds:
                    names = {str(kind) for kind in kinds}
                    for key in [key for key in pending if key[0] in names]:
                        del pending[key]
                    if stored:
                        self.void_kinds.update((handoff_id, name) for name in names)
                case Drop():
                    for key in [key for key in pending if key[0] != _WEBHOOK]:
                        del pending[key]
                    if stored:
                        self.void_handoffs.add(handoff_id)

    def _claimed(self, commit: Commit) -> tuple[Work, ...]:
        """What this commit scheduled for now and did not drop again."""
        claimed: dict[WorkKey, Work] = {}
        for write in commit.writes:
            pending = self._work.get(write.handoff.id, {})
            for action in write.actions:
                if isinstance(action, Schedule):
                    row = pending.get((str(action.kind), action.attempt, action.ref))
                    if row is not None and row[6]:
                        key = WorkKey(
                            handoff_id=write.handoff.id,
                            kind=action.kind,
                            attempt=action.attempt,
                            ref=action.ref,
                        )
                        claimed[key] = Work(key=key, due_at=row[4])
        return tuple(claimed.values())
