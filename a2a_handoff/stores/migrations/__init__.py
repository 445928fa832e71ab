"""The schemas, as numbered SQL files in one folder for each kind of database.

Rules: a file that was released is never changed: what is different later is another file. A database says
which schema it has, and since which one brokers may use it as it is: so those of the release before start on
it, too, and a release can be taken back.
"""

from __future__ import annotations

import logging
from importlib.resources import files

from a2a_handoff.ports import StoreUnavailable

#: The oldest schema whose brokers may use the newest: at most that of the release before.
USABLE_SINCE = {"sqlite": 6, "postgres": 4}
#: The mark that says so in a database.
SINCE_MARK = "schema.usable_since"

_LOG = logging.getLogger(__name__)


def scripts(database: str) -> list[str]:
    """The scripts of ``sqlite`` or ``postgres`` in order; script *n* leads to schema *n*."""
    folder = files(__name__).joinpath(database)
    found = sorted(
        (script for script in folder.iterdir() if script.name.endswith(".sql")),
        key=lambda script: script.name,
    )
    for number, script in enumerate(found, start=1):
        if int(script.name.partition("_")[0]) != number:
            raise RuntimeError(f"Migration {number} is missing: found {script.name}.")
    return [script.read_text(encoding="utf-8") for script in found]


def behind(database: str, name: str, version: int, usable_since: int | None) -> int:
    """How many steps a store lacks; below zero if a newer release made it, and this one may use it.

    ``usable_since`` is its mark. Raises ``StoreUnavailable`` if this release may not.
    """
    known = len(scripts(database))
    if version > known and (usable_since is None or usable_since > known):
        raise StoreUnavailable(
            f"The store {name} has schema {version}, this version knows {known}: "
            "upgrade a2a-handoff, or restore the backup made before its upgrade."
        )
    return known - version


def missing(database: str, name: str, version: int, usable_since: int | None) -> list[tuple[int, str]]:
    """The scripts that a store lacks, each with the number of the schema that it leads to.

    Raises as ``behind``.
    """
    lacks = behind(database, name, version, usable_since)
    if lacks < 0:
        _LOG.info("The store %s has schema %d of a newer version, which this one may use.", name, version)
    return list(enumerate(scripts(database)[version:], start=version + 1))
