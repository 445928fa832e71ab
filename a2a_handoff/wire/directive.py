"""What a target says about a handoff, in the metadata of a message.

Duty: read ``{URI: {"ready" | "declined" | "handoff" | "release" | "receipt": …}}``.
Rules: of ``ready``, ``declined``, ``handoff`` and ``release`` at most one; a receipt may stand beside
each. Members that are none of these are passed over: agents echo the metadata that they received.
Sources: docs/reference/handoff-context.md; A2A 1.0 section 4.6.
Not here: writing them (``kit.directive``), what becomes of them (``core.machine``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from msgspec import Raw

from a2a_handoff.core.context import EXTENSION_URI, HandoffContext, Limits, Mode, Package
from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.wire.context import read_context
from a2a_handoff.wire.fields import Fields, members_of

#: Longer reasons are cut: they are shown to people and kept with every attempt.
REASON_CHARS = 500

_PATH = f'metadata["{EXTENSION_URI}"]'
_REASON_BYTES = 65_536
_RECEIPT_BYTES = 262_144


class Verb(StrEnum):
    """What the target does with the handoff."""

    READY = "ready"
    DECLINED = "declined"
    HANDOFF = "handoff"
    RELEASE = "release"


@dataclass(frozen=True, slots=True, kw_only=True)
class Directive:
    """What a target said. ``verb`` is ``None`` if it sent a receipt alone.

    ``offer_id`` belongs to ``ready`` and ``declined``, empty if the target did not repeat it;
    ``reason`` to ``declined`` and ``release``, at most 500 characters. ``package`` is the next hop's,
    its mode set; ``handed_on`` the same as it came, evidence for the score. ``receipt`` is a JSON
    object, or empty.
    """

    verb: Verb | None = None
    offer_id: str = ""
    reason: str = ""
    package: Package | None = None
    handed_on: bytes = b""
    receipt: bytes = b""


def read_directive(
    metadata: bytes,
    *,
    now: float,
    parent: HandoffContext | None = None,
    limits: Limits | None = None,
) -> Directive | None:
    """What the target said in ``metadata`` (a JSON object), ``None`` if nothing of ours.

    ``now`` is in epoch seconds. ``parent`` is the context that the target holds: the next hop's takes
    from it what the directive leaves out. ``{"ready": true}`` is a short form, ``false`` declines.
    Raises ``HandoffError`` (``invalid_context``) with every fault.
    """
    if EXTENSION_URI.encode() not in metadata:
        return None
    outer = members_of(metadata)
    said = members_of(outer.get(EXTENSION_URI, b"null")) if outer else None
    if not said:
        return None
    faults: list[Violation] = []
    fields = Fields(said, _PATH, faults)
    given = [verb for verb in Verb if verb in said and bytes(said[verb]) != b"null"]
    for one, other in pairwise(given):
        fields.fault(other, f"contradicts {one}; say one of them")
    receipt = fields.raw_object("receipt", bytes_max=_RECEIPT_BYTES)
    directive = Directive(receipt=receipt)
    if given and not faults:
        directive = _read(given[0], said, fields, receipt, now=now, parent=parent, limits=limits)
    if faults:
        raise HandoffError(
            Code.INVALID_CONTEXT,
            f"The agent's answer is wrong: {faults[0].field} {faults[0].description}.",
            violations=tuple(faults),
        )
    return directive if directive != Directive() else None


def _read(
    verb: Verb,
    said: Mapping[str, Raw],
    fields: Fields,
    receipt: bytes,
    *,
    now: float,
    parent: HandoffContext | None,
    limits: Limits | None,
) -> Directive:
    if verb is Verb.HANDOFF:
        package = read_context(
            said[verb], path=f"{_PATH}.{verb}", now=now, limits=limits or Limits(), parent=parent
        )
        options = replace(package.options, mode=package.options.mode or Mode.TRANSFER)
        return Directive(
            verb=verb,
            package=replace(package, options=options),
            handed_on=bytes(said[verb]),
            receipt=receipt,
        )
    if verb is Verb.READY and bytes(said[verb]) in (b"true", b"false"):
        return Directive(verb=verb if fields.flag(verb) else Verb.DECLINED, receipt=receipt)
    inner = fields.object(verb)
    if inner is None:
        return Directive()
    return Directive(
        verb=verb,
        offer_id="" if verb is Verb.RELEASE else inner.name("offer_id"),
        reason="" if verb is Verb.READY else inner.text("reason", bytes_max=_REASON_BYTES)[:REASON_CHARS],
        receipt=inner.raw_object("receipt", bytes_max=_RECEIPT_BYTES) or receipt,
    )
