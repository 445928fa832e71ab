"""The database file of one broker: who may open it, its schema, and what its faults mean.

Duty: lock the file for one process, open connections, migrate, put faults in words.
Rules: messages are for the operator; they name the file by its absolute path and say what to do.
Not here: what is read and written.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path

from a2a_handoff.ports import StoreUnavailable
from a2a_handoff.stores.migrations import SINCE_MARK, USABLE_SINCE, behind, missing

#: What ``PRAGMA application_id`` of our databases says (``migrations/sqlite/0001``).
APPLICATION_ID = 0x6132616F
#: The first SQLite with STRICT tables.
SQLITE_MIN = (3, 37, 0)
#: Seconds to wait for another program (a backup, a shell) that holds the write lock.
BUSY_WAIT_S = 5.0
#: Prepared statements kept for each connection.
STATEMENTS = 512

_SET_SINCE = f"REPLACE INTO marks VALUES ('{SINCE_MARK}', {USABLE_SINCE['sqlite']});"  # noqa: S608 - constants
_SINCE = f"SELECT position FROM marks WHERE name = '{SINCE_MARK}'"  # noqa: S608 - a constant

_REMEDIES = {
    "SQLITE_FULL": "has no room left on its disk: free some; the broker goes on by itself",
    "SQLITE_CANTOPEN": "cannot be opened: check that its directory exists and may be written",
    "SQLITE_READONLY": "may not be written: check the owner and the permissions of file and directory",
    "SQLITE_PERM": "may not be written: check the owner and the permissions of file and directory",
    "SQLITE_NOTADB": "is not an SQLite database: name another file",
    "SQLITE_CORRUPT": "is damaged: stop the broker and restore a backup",
    "SQLITE_BUSY": "is locked by another program: end that program's transaction",
    "SQLITE_LOCKED": "is locked by another program: end that program's transaction",
    "SQLITE_IOERR": "cannot be read or written: check the disk",
}


class DatabaseFile:
    """One SQLite database, used by one process."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))
        self._lock: int | None = None

    def lock(self) -> None:
        """Take the file for this process. Raises ``StoreUnavailable`` if another one has it."""
        if sqlite3.sqlite_version_info < SQLITE_MIN:
            raise StoreUnavailable(
                f"SQLite {sqlite3.sqlite_version} is too old for the store: use a Python with "
                f"{'.'.join(map(str, SQLITE_MIN))} or newer."
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnavailable(
                f"The store {self.path} cannot be opened ({error.strerror}): "
                "check that its directory exists and may be written."
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise StoreUnavailable(
                f"The store {self.path} is in use by another broker: stop it, or name another file. "
                "Several brokers share one PostgreSQL, never one file."
            ) from error
        except OSError as error:
            os.close(lock)
            raise StoreUnavailable(
                f"The store {self.path} cannot be locked ({error.strerror}): put it on a local disk."
            ) from error
        self._lock = lock

    def unlock(self) -> None:
        """Let go of the file. The lock file stays: removing it would race with the next owner."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def connect(self, *, read_only: bool = False) -> sqlite3.Connection:
        """Open a connection that any one thread at a time may use. Raises ``StoreUnavailable``."""
        try:
            if not read_only:
                self.path.touch(mode=0o600)
            connection = sqlite3.connect(
                self.path,
                timeout=BUSY_WAIT_S,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=STATEMENTS,
            )
        except OSError as error:
            raise StoreUnavailable(
                f"The store {self.path} may not be written ({error.strerror}): "
                "check the owner and the permissions of file and directory."
            ) from error
        except sqlite3.Error as error:
            raise self.fault(error) from error
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA cache_size = -65536")
            if read_only:
                connection.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            connection.close()
            raise self.fault(error) from error
        if mode != "wal":
            connection.close()
            raise StoreUnavailable(f"The store {self.path} cannot keep a log: put it on a local disk.")
        return connection

    def migrate(self, connection: sqlite3.Connection) -> None:
        """Bring the schema up to date, each step in a transaction. Raises ``StoreUnavailable``."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if application != APPLICATION_ID and (application or version or tables):
            raise StoreUnavailable(f"The store {self.path} belongs to another program: name another file.")
        for number, script in missing("sqlite", str(self.path), version, _since(connection, version)):
            try:
                connection.executescript(
                    f"BEGIN IMMEDIATE;\n{script}\n{_SET_SINCE}\nPRAGMA user_version = {number};\nCOMMIT;"
                )
            except sqlite3.Error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def behind(self) -> int:
        """How many steps the schema lacks, below zero if it is a newer one that may be used.

        Raises ``sqlite3.Error`` if the file is no database, ``StoreUnavailable`` if its schema may not be
        used.
        """
        with contextlib.closing(self._reader()) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            return behind("sqlite", str(self.path), version, _since(connection, version))

    def damage(self) -> list[str]:
        """What SQLite finds wrong with the file; nothing if it is sound. All of it is read.

        Raises ``StoreUnavailable`` if it cannot be read as a database at all.
        """
        try:
            with contextlib.closing(self._reader()) as connection:
                found = [line for (line,) in connection.execute("PRAGMA integrity_check(20)").fetchall()]
        except sqlite3.Error as error:
            raise self.fault(error) from error
        return [] if found == ["ok"] else found

    def save(self, target: Path) -> int:
        """Copy the database as it is now to a new file, also while a broker writes. Gives its size in bytes.

        The copy is whole and durable when this returns; a copy that failed leaves nothing behind. Raises
        ``StoreUnavailable`` if it cannot be read, and if ``target`` exists or cannot be written.
        """
        partial = target.with_name(f"{target.name}.partial")
        try:
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            raise StoreUnavailable(f"The backup {partial} cannot be written: {error.strerror}.") from error
        try:
            if target.exists():
                raise StoreUnavailable(f"The backup {target} exists: name another file.")
            with (
                contextlib.closing(self._reader()) as connection,
                contextlib.closing(sqlite3.connect(partial)) as copy,
            ):
                connection.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")  # all of it is in the one file
            _sync(partial)
            partial.replace(target)
            _sync(target.parent)
            return target.stat().st_size
        except sqlite3.Error as error:
            raise self.fault(error) from error
        finally:
            partial.unlink(missing_ok=True)

    def _reader(self) -> sqlite3.Connection:
        if not self.path.exists():
            raise StoreUnavailable(f"There is no store {self.path}.")
        return sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True, timeout=BUSY_WAIT_S)

    def fault(self, error: sqlite3.Error) -> StoreUnavailable:
        """Say what happened and what to do about it."""
        name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
        remedy = next(
            (remedy for prefix, remedy in _REMEDIES.items() if name.startswith(prefix)),
            f"failed: {error}",
        )
        return StoreUnavailable(f"The store {self.path} {remedy} ({name}).")


def _since(connection: sqlite3.Connection, version: int) -> int | None:
    """Since which schema the database may be used as it is, if it says so."""
    row = connection.execute(_SINCE).fetchone() if version else None
    return None if row is None else row[0]


def _sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
