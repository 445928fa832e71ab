"""The one connection of this broker that writes: what waits is committed together.

Duty: queue, group commit, answering the callers, going on after a lost connection.
Rules:
- While one transaction is under way the next ones gather; so the group grows with the load and a single
  commit waits for nobody.
- A transaction first takes the row of positions, and so has its turn among all brokers: what it then looks up
  holds until it ends, and positions become visible in their order. Claims of work need no turn.
- A connection that breaks during COMMIT leaves a doubt. So each transaction notes in the database which of
  this broker's turns it is. As soon as the server is back it is asked for the last one, and callers that
  still wait learn the truth. The transaction's own number does not tell it: a server that crashed gives
  numbers anew that it had not written down.
- Without a connection nothing is taken in: callers hear so at once.
Not here: what is written (``postgres_batch``, ``postgres_work``), what is read.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec

from a2a_handoff.ports import StoreUnavailable
from a2a_handoff.stores import postgres_batch, postgres_replicas, postgres_work
from a2a_handoff.stores.batch import Batch, Prepared, touched
from a2a_handoff.stores.jobs import Job, answer
from a2a_handoff.stores.postgres_server import Server, Session
from a2a_handoff.stores.usage import Line

#: Most commits in one transaction, and most bytes of theirs.
COMMITS_MAX = 512
BYTES_MAX = 16 << 20
#: Seconds between tries to connect, the first and the longest.
AGAIN_S = 0.1
AGAIN_MAX_S = 1.0
#: Seconds that callers wait for the truth about a transaction that is in doubt.
DOUBT_S = 10.0

_BEGIN = "BEGIN"
_TAKE_TURN = "BEGIN; SELECT FROM positions FOR UPDATE"

_log = logging.getLogger(__name__)


class Statement(msgspec.Struct, frozen=True):
    """What is done beside commits. ``in_turn``: it may meet what other brokers write, and waits its turn."""

    run: Callable[[Session], Awaitable[Any]]
    in_turn: bool = True


class _InDoubt(Exception):
    """The connection broke while a transaction ended. ``results`` hold if ``turn`` was committed."""

    def __init__(self, number: str, turn: int, results: list[object]) -> None:
        self.number = number
        self.turn = turn
        self.results = results
        super().__init__(number)


class Writer:
    """Owns the only session of this broker that writes."""

    def __init__(self, server: Server, session: Session, *, owner: str, replica: int, lease_s: float) -> None:
        self._server = server
        self._session = session
        self._owner = owner
        self._replica = replica
        self._lease_s = lease_s
        self._turns = itertools.count(1)
        self._jobs: deque[Job[Statement]] = deque()
        self.line = Line()
        """Writes that wait, for whoever measures."""
        self._something = asyncio.Event()
        self._stopping = False
        self._down: StoreUnavailable | None = None
        self._loop = asyncio.get_running_loop()
        session.on_loss(self._something.set)
        self._task = asyncio.create_task(self._write_all(), name="a2a-handoff-writer")

    def submit(self, work: Prepared | Statement) -> asyncio.Future[Any]:
        """Queue a write. The future has its result when it is durable. Raises ``StoreUnavailable``."""
        if self._stopping:
            raise StoreUnavailable(f"The store {self._server.name} is closed.")
        if self._down is not None:
            raise StoreUnavailable(str(self._down))
        future = self._loop.create_future()
        self.line.join()
        self._jobs.append(Job(work, future))
        self._something.set()
        return future

    async def close(self) -> None:
        """Write what was taken in, and take nothing more."""
        self._stopping = True
        self._something.set()
        await self._task
        if not self._session.closed:
            await self._session.close()

    # --- the loop --------------------------------------------------------------------------------

    async def _write_all(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            while self._jobs and not self._session.closed:
                jobs = self._take()
                self._answer(jobs, await self._write(jobs))
            if self._stopping:
                self._refuse_all(StoreUnavailable(f"The store {self._server.name} is closed."))
                return
            if self._session.closed:
                await self._connect_again()

    def _take(self) -> list[Job[Statement]]:
        """What waits, at least one, as much as goes into a transaction."""
        jobs: list[Job[Statement]] = []
        size = 0
        while self._jobs and len(jobs) < COMMITS_MAX and size < BYTES_MAX:
            jobs.append(self._jobs.popleft())
            work = jobs[-1].work
            size += work.size if isinstance(work, Prepared) else 0
        return jobs

    async def _write(self, jobs: Sequence[Job[Statement]]) -> list[object]:
        """The results, an exception for what failed."""
        try:
            return await self._transact(jobs)
        except _InDoubt as doubt:
            return await self._ask(doubt, jobs)
        except Exception as error:  # noqa: BLE001 - the loop must outlive whatever a caller sent
            await self._roll_back(error)
            if self._server.is_ours(error) and not self._server.values_at_fault(error):
                return [self._server.fault(error) for _ in jobs]
            if len(jobs) == 1:
                return [error]
            return [(await self._write([job]))[0] for job in jobs]

    async def _transact(self, jobs: Sequence[Job[Statement]]) -> list[object]:
        session = self._session
        in_turn = any(isinstance(job.work, Prepared) or job.work.in_turn for job in jobs)
        await session.run(_TAKE_TURN if in_turn else _BEGIN)
        results: list[object] = []
        number: str | None = None
        turn = next(self._turns)
        for commits, run in itertools.groupby(jobs, lambda job: isinstance(job.work, Prepared)):
            if commits:
                prepared = [cast("Prepared", job.work) for job in run]
                known, position = await postgres_batch.look(session, touched(prepared))
                batch = Batch(known, position=position, owner=self._owner, lease_s=self._lease_s)
                results += map(batch.answer, prepared)
                number = await postgres_batch.write(session, batch, self._replica, turn)
            else:
                results += [await cast("Statement", job.work).run(session) for job in run]
        if number is None:
            number = await postgres_replicas.note_turn(session, self._replica, turn)
        try:
            await session.run("COMMIT")
        except Exception:
            # Whatever it was: only a server that is asked anew can tell what became of it.
            session.drop()
            if number is None:
                raise
            raise _InDoubt(number, turn, results) from None
        return results

    async def _roll_back(self, error: Exception) -> None:
        if self._session.closed:
            return
        try:
            if isinstance(error, TimeoutError):
                raise error
            await self._session.run("ROLLBACK")
        except Exception:  # noqa: BLE001 - whatever is wrong with it, another session is better
            self._session.drop()

    async def _ask(self, doubt: _InDoubt, jobs: Sequence[Job[Statement]]) -> list[object]:
        """What became of a transaction; the server must come back for that."""
        unknown = StoreUnavailable(
            f"The store {self._server.name} was lost while it wrote: whether the last writes are stored will "
            "be seen when it is back."
        )
        patience = self._loop.call_later(DOUBT_S, _fail, [job.future for job in jobs], unknown)
        try:
            while await self._connect_again():
                try:
                    last = await postgres_replicas.last_turn(self._session, self._replica, doubt.number)
                except Exception as error:  # noqa: BLE001 - asked again of the next session
                    _log.warning("%s", self._server.fault(error))
                    self._session.drop()
                    continue
                if last is None:
                    # The old session has not noticed yet that its connection is gone.
                    await asyncio.sleep(AGAIN_S)
                    continue
                if last == doubt.turn:
                    return doubt.results
                break
            else:
                return [unknown for _ in jobs]
        finally:
            patience.cancel()
        lost = StoreUnavailable(f"The store {self._server.name} was lost while it wrote; nothing was stored.")
        return [lost for _ in jobs]

    async def _connect_again(self) -> bool:
        """Stay until there is a session again. False if the store is closed first."""
        pause = AGAIN_S
        while self._session.closed:
            try:
                self._session = await begin(self._server, self._owner)
                await self._come_back(self._session)
            except StoreUnavailable as error:
                if self._down is None:
                    _log.warning("%s", error)
                self._refuse_all(error)
                if self._stopping:
                    return False
                await asyncio.sleep(pause)
                pause = min(2 * pause, AGAIN_MAX_S)
        self._session.on_loss(self._something.set)
        if self._down is not None:
            _log.info("The store %s is there again.", self._server.name)
            self._down = None
        return True

    async def _come_back(self, session: Session) -> None:
        try:
            await postgres_replicas.rejoin(session, self._owner, self._replica)
        except Exception as error:
            session.drop()
            raise self._server.fault(error) from error

    def _refuse_all(self, error: StoreUnavailable) -> None:
        """Whoever waits waits in vain. Only the store's end is not told to those who come later."""
        if not self._stopping:
            self._down = error
        waiting, self._jobs = self._jobs, deque()
        self.line.refuse(len(waiting))
        _fail([job.future for job in waiting], error)

    # --- answers ---------------------------------------------------------------------------------

    def _answer(self, jobs: Sequence[Job[Statement]], results: Sequence[object]) -> None:
        self.line.leave(len(jobs))
        claimed = answer(jobs, results)
        if claimed and not self._stopping and self._down is None:
            given = self.submit(
                Statement(lambda session: postgres_work.release(session, self._owner, claimed), in_turn=False)
            )
            # If that fails too, the lease ends or the next start frees them.
            given.add_done_callback(lambda done: done.cancelled() or done.exception())


async def begin(server: Server, owner: str) -> Session:
    """A session that writes, and shows that ``owner`` lives. Raises ``StoreUnavailable``."""
    session = await server.connect()
    try:
        await postgres_work.live(session, owner)
    except Exception as error:
        session.drop()
        raise server.fault(error) from error
    return session


def _fail(futures: Sequence[asyncio.Future[Any]], error: StoreUnavailable) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(StoreUnavailable(str(error)))
