"""A conversation with one target: what it says, turned into commits.

Duty: read the answers of one call, settle its work whatever happens, and see that one conversation at a
time reads what a target says about a handoff.
Rules: what the target says is durable before anybody hears of it; a stream is read only as fast as it
can be committed, and while the store cannot write, nothing of it is lost; what came in while a commit ran
goes into the next one together.
Not here: what is sent and why (``exchange``), what an answer means (``wire.delivery``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakValueDictionary

from msgspec.structs import replace

from a2a_handoff.broker import HandoffBroker
from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Agent
from a2a_handoff.core.commands import Command
from a2a_handoff.core.errors import Code, HandoffError
from a2a_handoff.core.events import Outcome, State, WorkKind
from a2a_handoff.core.handoff import Attempt, Handoff
from a2a_handoff.ledger import Ledger
from a2a_handoff.ports import (
    AgentClient,
    AgentError,
    Clock,
    RemoteState,
    Sent,
    SharedStore,
    StoreUnavailable,
    Update,
    WorkKey,
)
from a2a_handoff.registry import Registry
from a2a_handoff.wire.content import canonical
from a2a_handoff.wire.delivery import Verdict, delivered_context, interpret
from a2a_handoff.wire.directive import Directive, Verb

_T = TypeVar("_T")

_QUEUED_UPDATES = 64
_STORE_AGAIN_S = 1.0
_NOT_STARTED = frozenset({Outcome.TARGET_AUTH, Outcome.TARGET_REJECTED, Outcome.TARGET_UNAVAILABLE})


class Talks:
    """What conversations have in common: the parts of the broker that they need, and who reads."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        broker: HandoffBroker,
        registry: Registry,
        client: AgentClient,
        clock: Clock,
    ) -> None:
        self.ledger = ledger
        self.broker = broker
        self.journal = broker.journal
        self.registry = registry
        self.client = client
        self.clock = clock
        self._readers: dict[str, Talk] = {}
        ledger.on_said = self.said
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def reader(self, handoff_id: str) -> Talk | None:
        """The conversation that reads what the target says about a handoff."""
        return self._readers.get(handoff_id)

    def said(self, handoff_id: str) -> None:
        """Another broker passes a message of the caller on."""
        reader = self._readers.get(handoff_id)
        if reader is not None:
            reader.overtaken = True

    async def goes_on_elsewhere(self, handoff_id: str) -> bool:
        """Whether another broker reads what the target says about a handoff."""
        store = self.ledger.store
        if not isinstance(store, SharedStore):
            return False
        return await _patiently(lambda: store.talked_elsewhere(handoff_id, now=self.clock.now()))

    def become_reader(self, talk: Talk) -> bool:
        """Read from now on what the target says. False if another conversation does."""
        return self._readers.setdefault(talk.handoff.id, talk) is talk

    def leave(self, talk: Talk) -> None:
        """The conversation is over."""
        if self._readers.get(talk.handoff.id) is talk:
            del self._readers[talk.handoff.id]

    @asynccontextmanager
    async def turn(self, handoff_id: str, patience_s: float) -> AsyncGenerator[None]:
        """Messages of the caller reach the target in their order, unless one is not answered in time."""
        lock = self._turns.setdefault(handoff_id, asyncio.Lock())
        held = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                held = await lock.acquire()
        try:
            yield
        finally:
            if held:
                lock.release()


@dataclass(slots=True, kw_only=True)
class Talk:
    """The state of one conversation.

    ``resent``: the task may have been sent before. ``asking``: it asks about work that began before.
    ``follow_up``: it passes a message of the caller on. ``overtaken``: another one did so beside it, and
    what the target asks here may be answered by that. ``calls_back``: the target says itself when there is
    more, so that nobody waits for it; ``hinted``: it did while this conversation was under way.
    """

    talks: Talks
    key: WorkKey
    handoff: Handoff
    attempt: Attempt
    agent: Agent
    event: ev.HandoffRequested
    resent: bool = False
    asking: bool = False
    follow_up: bool = False
    overtaken: bool = False
    calls_back: bool = False
    hinted: bool = False

    async def run(self, answers: AsyncGenerator[Update]) -> None:
        """Read to the end, and settle the work whatever happens.

        Raises ``AgentError`` for a follow-up that the target cannot have got.
        """
        try:
            if await self.read(answers):
                return
            if self.calls_back and self.attempt.remote.task_id:
                await self._park()
                return
        except AgentError as error:
            await self._failed(error)
            return
        finally:
            self.talks.leave(self)
        await self._cut()

    async def _park(self) -> None:
        """Leave the target alone until it calls back, but for a look now and then."""
        with contextlib.suppress(AgentError):
            while self.hinted or self.overtaken:
                if await self.ask_on():
                    return
        again = ev.Schedule(
            kind=WorkKind.RECONCILE,
            due_at=self.talks.clock.now() + self.handoff.policy.reconcile_every_s,
            attempt=self.attempt.number,
        )
        await _patiently(lambda: self.talks.ledger.swap(self.key, again))

    async def ask_on(self) -> bool:
        """Ask until nothing came up meanwhile that makes another answer likely. True if it came to an end."""
        while True:
            self.overtaken = self.hinted = False
            if await self._ask():
                return True
            if not (self.overtaken or self.hinted):
                return False

    async def _ask(self) -> bool:
        """How the target's task stands, and then what becomes of it. True if that is its end."""
        client, remote_id = self.talks.client, self.attempt.remote.task_id
        update = await client.get(self.agent, remote_id)
        self._heard()
        if await self.take([update]):
            return True
        return not self.calls_back and await self.read(client.subscribe(self.agent, remote_id))

    async def read(self, answers: AsyncGenerator[Update]) -> bool:
        """Take in everything that comes. True if the conversation came to its end."""
        async with contextlib.aclosing(answers) as updates:
            first = await self._first(updates)
            if first is None:
                return False
            self._heard()
            if await self._handed_over():
                await self._change(settle=True)
                return True
            if self.follow_up and await self._stands_as_before(first):
                # A stream begins with the task (A2A 1.0 section 3.1.2), here as it was before this message.
                first = await anext(updates, first)
            if await self.take([first]):
                return True
            async with contextlib.aclosing(_batches(updates)) as batches:
                async for batch in batches:
                    self._heard()
                    if await self.take(batch):
                        return True
        return False

    def _heard(self) -> None:
        self.talks.registry.presence.heard_from(self.handoff.tenant, self.agent.agent_id)

    async def _handed_over(self) -> bool:
        """Whether another conversation reads on, so that this one has done its part with the first answer."""
        reader = self.talks.reader(self.handoff.id)
        if reader not in (None, self):
            reader.overtaken = True
            return True
        if self.follow_up and await self.talks.goes_on_elsewhere(self.handoff.id):
            self.talks.leave(self)
            return True
        return not self.talks.become_reader(self)

    async def _first(self, updates: AsyncGenerator[Update]) -> Update | None:
        """The first answer. After ``ack_wait`` of silence the source is told, and the wait goes on."""
        if self.follow_up:
            async with self.talks.turn(self.handoff.id, self.handoff.policy.ack_wait_s):
                return await anext(updates, None)
        if self.asking:
            return await anext(updates, None)
        loop = asyncio.get_running_loop()
        telling: list[asyncio.Task[None]] = []
        alarm = loop.call_later(
            self.handoff.policy.ack_wait_s, lambda: telling.append(loop.create_task(self._overdue()))
        )
        try:
            return await anext(updates, None)
        finally:
            alarm.cancel()
            for task in telling:
                task.cancel()

    async def _overdue(self) -> None:
        """Tell the source, beside the wait. If that moves the task on, this conversation is stopped."""
        unsure = self._unsure("no answer yet")
        with contextlib.suppress(HandoffError):
            await _patiently(
                lambda: self.talks.ledger.change(
                    self.handoff.id,
                    lambda h: (unsure,) if h.attempt is not None and h.attempt.acked_at is None else (),
                )
            )

    def _unsure(self, detail: str) -> cmd.DeliveryUnsure:
        return cmd.DeliveryUnsure(
            attempt=self.attempt.number, detail=detail, means=self.talks.broker.means(self.handoff)
        )

    async def take(self, batch: list[Update]) -> bool:
        """Commit what a batch of answers means. True if the conversation came to its end."""
        # The target may have called the broker meanwhile, or the caller said something.
        self._moved(await _patiently(lambda: self.talks.journal.recall(self.handoff.id)))
        commands: list[Command] = []
        verdict: Verdict | None = None
        sent = delivered_context(self.event, self.agent, self.talks.broker.count)
        means = self.talks.broker.means
        attempt = self.attempt
        said: set[bytes] = set()
        for update in batch:
            fresh = await self._only_new(update, said) if update.snapshot else update
            if fresh.state is not None and fresh.state.asks and self._already(fresh):
                verdict = Verdict(commands=(), ended=True)
                break
            verdict = interpret(
                self.handoff, attempt, fresh, sent=sent, means=means, now=self.talks.clock.now()
            )
            _merge(commands, verdict.commands)
            if commands and attempt.acked_at is None:
                # The acknowledgement is among the commands; what follows must not give it again.
                attempt = replace(attempt, acked_at=self.talks.clock.now())
            if verdict.ended:
                break
        doubtful = self.overtaken and bool(commands) and isinstance(commands[-1], cmd.AskCaller)
        if doubtful:
            commands.pop()
        if verdict is None or not verdict.ended or doubtful:
            if commands:
                self._moved(await self._change(*commands))
            return False
        if verdict.directive is not None:
            await self._directed(commands, verdict.directive, target_open=verdict.target_open)
            return True
        await self._change(*commands, settle=True)
        return True

    async def _only_new(self, update: Update, said: set[bytes]) -> Update:
        """Of a snapshot, what the log does not have yet, nor ``said``, to which it is added."""
        if not update.outputs and not update.message:
            return update
        known = said
        if self.attempt.acked_at is not None:
            known = said | await _patiently(lambda: self.talks.journal.known_outputs(self.handoff.id))
        outputs = tuple(o for o in update.outputs if o.body not in known)
        message = update.message
        fresh = bool(outputs) or (self.calls_back and bool(message) and message not in known)
        # What was joined of its chunks is written our way, and what was called back the target's other way.
        meant = {canonical(body) for body in known if body} if fresh and known else set[bytes]()
        outputs = tuple(o for o in outputs if canonical(o.body) not in meant)
        repeated = message in known or (bool(message) and bool(meant) and canonical(message) in meant)
        going_on = update.state in (RemoteState.WORKING, RemoteState.SUBMITTED)
        if repeated and (going_on or self._waits()):
            message = b""
        said.update(output.body for output in outputs)
        said.add(message)
        return replace(update, outputs=outputs, message=message)

    def _already(self, update: Update) -> bool:
        """Whether a snapshot only says that the target still waits for the caller, as is known."""
        auth = update.state is RemoteState.AUTH_REQUIRED
        known = State.AUTH_REQUIRED if auth else State.INPUT_REQUIRED
        nothing_new = not update.message and not update.outputs
        return update.snapshot and nothing_new and self._waits() and self.handoff.state is known

    async def _stands_as_before(self, update: Update) -> bool:
        """Whether an answer only says what was asked before; of a stream more may follow."""
        if not update.snapshot or update.state is None or not update.state.asks:
            return False
        fresh = await self._only_new(update, set())
        known = await _patiently(lambda: self.talks.journal.known_outputs(self.handoff.id))
        return not fresh.outputs and fresh.message in (b"", *known)

    def _waits(self) -> bool:
        """Whether it is known that the target waits for the caller."""
        return self.handoff.state.asks and not self.handoff.uncertain

    async def _directed(self, commands: list[Command], directive: Directive, *, target_open: bool) -> None:
        """The target hands the task on, or gives it back."""
        if commands:
            self._moved(await self._change(*commands))
        if directive.verb is Verb.RELEASE or directive.package is None:
            release = cmd.Release(
                attempt=self.attempt.number, agent_id=self.agent.agent_id, reason=directive.reason
            )
            await self._change(release, settle=True)
            return
        broker, package = self.talks.broker, directive.package
        try:
            await _patiently(
                lambda: broker.hand_on(
                    self.handoff,
                    self.attempt,
                    package,
                    directive.handed_on,
                    target_open=target_open,
                    settled=(self.key,),
                )
            )
        except HandoffError as error:
            await self._refused(error, target_open=target_open)

    async def _refused(self, error: HandoffError, *, target_open: bool) -> None:
        """The target may not hand it on: the task goes back to its sender, with the reason."""
        outcome = {
            Code.CYCLE_DETECTED: Outcome.CYCLE_DETECTED,
            Code.MAX_HOPS_EXCEEDED: Outcome.MAX_HOPS_EXCEEDED,
        }.get(error.code, Outcome.INVALID_RESPONSE)
        release = cmd.Release(
            attempt=self.attempt.number,
            agent_id=self.agent.agent_id,
            reason=error.message,
            outcome=outcome,
            target_open=target_open,
        )
        await self._change(release, settle=True)

    async def _failed(self, error: AgentError) -> None:
        """The call failed. What follows depends on whether the target can have begun."""
        if self.follow_up and error.sent is Sent.NO:
            raise error
        broker = self.talks.broker
        h = await _patiently(lambda: self.talks.journal.recall(self.handoff.id))
        attempt = self.attempt
        not_started = error.sent is Sent.NO or (error.sent is Sent.YES and error.outcome in _NOT_STARTED)
        if self.follow_up or (h.attempt is not None and h.attempt.remote.task_id):
            await self._cut()
        elif not_started and self.resent:
            await self._change(
                self._unsure(error.detail), settle=True
            )  # this one has not; the first may have
        elif not_started:
            failed = cmd.DeliveryFailed(
                attempt=attempt.number,
                outcome=error.outcome,
                detail=error.detail,
                again=error.sent is Sent.NO and error.again,
                retry_after_s=error.retry_after_s,
                means=broker.means(h),
            )
            await self._change(failed, settle=True)
        elif error.sent is Sent.MAYBE:
            await self._change(self._unsure(error.detail), settle=True)
        elif h.replay_safe and not h.output_started:
            failed = cmd.DeliveryFailed(
                attempt=attempt.number,
                outcome=error.outcome,
                detail=error.detail,
                again=False,
                means=broker.means(h),
            )
            await self._change(failed, settle=True)
        else:
            fail = cmd.Fail(
                attempt=attempt.number,
                agent_id=attempt.agent_id,
                outcome=error.outcome,
                detail=error.detail,
            )
            await self._change(fail, settle=True)

    async def _cut(self) -> None:
        """The stream ended before the task did: ask the target, now and until the deadline."""
        await self._change(self._unsure("the stream ended before the task"), settle=True)

    async def _change(self, *commands: Command, settle: bool = False) -> Handoff:
        settled = (self.key,) if settle else ()
        return await _patiently(
            lambda: self.talks.ledger.change(
                self.handoff.id, lambda _: commands, settled=settled, held=(self.key,)
            )
        )

    def _moved(self, after: Handoff) -> None:
        """Go on with the newest state. Raises ``stale_attempt`` if the task went elsewhere meanwhile."""
        current = after.attempt
        if current is None or current.number != self.attempt.number or current.outcome is not None:
            raise HandoffError(Code.STALE_ATTEMPT)
        self.handoff, self.attempt = after, current


async def _patiently(work: Callable[[], Awaitable[_T]]) -> _T:
    """Try until the store is there: what a target said once it may not say again."""
    while True:
        try:
            return await work()
        except StoreUnavailable:
            pass
        except HandoffError as error:
            if error.code is not Code.UNAVAILABLE:
                raise
        await asyncio.sleep(_STORE_AGAIN_S)


def _merge(commands: list[Command], more: tuple[Command, ...]) -> None:
    """Append; two progress reports in a row become one event."""
    for command in more:
        last = commands[-1] if commands else None
        if isinstance(last, cmd.Progress) and isinstance(command, cmd.Progress):
            commands[-1] = cmd.Progress(
                attempt=command.attempt,
                agent_id=command.agent_id,
                outputs=(*last.outputs, *command.outputs),
                remote=command.remote or last.remote,
            )
        else:
            commands.append(command)


async def _batches(updates: AsyncGenerator[Update]) -> AsyncGenerator[list[Update]]:
    """Everything that arrived since the last batch was taken, at least one."""
    queue: asyncio.Queue[Update | Exception | None] = asyncio.Queue(maxsize=_QUEUED_UPDATES)

    async def read() -> None:
        try:
            async for update in updates:
                await queue.put(update)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other end must hear that it is over
            await queue.put(error)
        else:
            await queue.put(None)

    reader = asyncio.create_task(read())
    try:
        while True:
            batch: list[Update] = []
            item = await queue.get()
            while isinstance(item, Update):
                batch.append(item)
                if queue.empty():
                    break
                item = queue.get_nowait()
            if batch:
                yield batch
            if isinstance(item, Exception):
                raise item
            if item is None:
                return
    finally:
        reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reader
