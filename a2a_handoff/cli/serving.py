"""``serve``: flags to settings, settings to a running broker.

Duty: read the flags, of which there is one for each setting, and start the server.
Not here: what the settings mean (``config``), the server (``app``).
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path

from a2a_handoff.cli.outcome import USAGE, Failed
from a2a_handoff.config import Settings, SettingsError, read
from a2a_handoff.config.sources import allowed, default, flag, meaning, suggest, unit, variable


def run(args: Sequence[str], config_file: Path | None) -> int:
    """Serve until stopped. Raises ``Failed`` with one line for each wrong setting."""
    try:
        settings = read(environ=os.environ, flags=flags_of(args), config_file=config_file)
    except SettingsError as error:
        raise Failed(*error.lines, code=USAGE) from None
    from a2a_handoff.server import serve  # noqa: PLC0415 - heavy, and only needed now

    return serve(settings)


def flags_of(args: Sequence[str]) -> dict[str, str | bool]:
    """The settings that the flags in ``args`` set, as text; yes-or-no ones may go without a value.

    ``--name value``, ``--name=value``, ``--name``, ``--no-name``. Raises ``SettingsError``.
    """
    names = {flag(name): name for name in Settings.model_fields}
    negations = {"--no-" + key[2:]: name for key, name in names.items() if _yes_or_no(name)}
    found: dict[str, str | bool] = {}
    faults: list[str] = []
    rest = list(args)
    while rest:
        key, equals, value = rest.pop(0).partition("=")
        if key in negations and not equals:
            found[negations[key]] = False
        elif key not in names:
            faults.append(_no_flag(key))
            if rest and not equals and not rest[0].startswith("--"):
                rest.pop(0)
        elif equals:
            found[names[key]] = value
        elif _yes_or_no(names[key]):
            found[names[key]] = True
        elif rest and not rest[0].startswith("--"):
            found[names[key]] = rest.pop(0)
        else:
            faults.append(f"the flag {key} needs a value (allowed: {allowed(names[key])})")
    if faults:
        raise SettingsError(tuple(faults))
    return found


def help_text(width: int) -> str:
    """The help of ``serve``: every flag with its default and meaning, in lines of ``width``."""
    lines = [
        "Usage: a2a-handoff serve [--config FILE] [--SETTING VALUE]...",
        "",
        *_wrapped("Run the broker. It prints one line with its URL when it is ready.", width, indent=2),
        "",
        *_wrapped(
            f"Flags go over the environment ({variable('ack_wait')} for --ack-wait), the environment over "
            "the settings file (ack_wait), the file over the defaults. Times are seconds.",
            width,
            indent=2,
        ),
        "",
        "Options:",
        "  --config FILE",
        *_wrapped(
            "Settings file. Default: A2A_HANDOFF_CONFIG, else ./a2a-handoff.toml if there is one.",
            width,
            indent=6,
        ),
    ]
    for name in Settings.model_fields:
        limits = f"; allowed: {allowed(name)}" if allowed(name) and not _yes_or_no(name) else ""
        what = f"{meaning(name)} [default: {default(name) or 'unset'}{limits}]"
        lines.append(f"  {flag(name)}" + ("" if _yes_or_no(name) else f" {(unit(name) or 'value').upper()}"))
        lines += _wrapped(what, width, indent=6)
    return "\n".join([*lines, "  -h, --help", *_wrapped("Show this message and exit.", width, indent=6)])


def _wrapped(text: str, width: int, *, indent: int) -> list[str]:
    margin = " " * indent
    return textwrap.wrap(text, max(width, 40), initial_indent=margin, subsequent_indent=margin)


def _no_flag(key: str) -> str:
    if not key.startswith("-"):
        return f"{key!r} belongs to no flag"
    return f"there is no flag {key}{suggest(key.lstrip('-').replace('-', '_'), flag)}"


def _yes_or_no(name: str) -> bool:
    return allowed(name) == "true, false"
