"""The schemas, as numbered SQL files in one folder for each kind of database.

A file that was released is never changed: what is different later is another file.
"""

from __future__ import annotations

from importlib.resources import files


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
