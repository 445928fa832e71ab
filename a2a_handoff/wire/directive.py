"""What a target says about a handoff, in the metadata of a message.

Duty: read ``{URI: {"ready" | "declined" | "handoff" | "release" | "receipt": …}}``.
Rules: of ``ready``, ``declined``, ``handoff`` and ``release`` at most one; a receipt may stand beside
each. Members that are none of these are passed over: agents echo the metadata that they received.
Sources: docs/reference/extension.md; A2A 1.0 section 4.6.
Not here: writing them (``kit.directive``), what becomes of them (``core.machine``).
"""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from a2a_handoff.core.context import EXTENSION_URI, HandoffContext, Limits, Mode, Package
from a2a_handoff.core.errors import Violation
from a2a_handoff.core.score import RECEIPT_BYTES_MAX
from a2a_handoff.wire.context_reader import invalid, read_context
from a2a_handoff.wire.fields import add_fault, check_names, members_of, read_record

#: Longer reasons are cut: they are shown to people and kept with every attempt.
REASON_CHARS = 500

_PATH = f'metadata["{EXTENSION_URI}"]'


class Verb(StrEnum):
    """What the target does with the handoff."""

    READY = "ready"
    DECLINED = "declined"
    HANDOFF = "handoff"
    RELEASE = "release"


class Directive(msgspec.Struct, frozen=True, kw_only=True):
    """What a target said. ``verb`` is ``None`` if it sent a receipt alone.

    ``offer_id`` is empty if the target did not repeat it; ``reason`` goes with ``declined`` and
    ``release``, at most 500 characters. ``package`` is the next hop's,
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
    given = [verb for verb in Verb if verb in said and bytes(said[verb]) != b"null"]
    for one, other in pairwise(given):
        add_fault(faults, f"{_PATH}.{other}", f"contradicts {one}; say one of them")
    directive = Directive(receipt=_receipt(said.get("receipt"), _PATH, faults))
    if given and not faults:
        verb = given[0]
        if verb is Verb.HANDOFF:
            directive = _handed_on(said[verb], directive, now=now, parent=parent, limits=limits)
        else:
            directive = _answer(verb, said[verb], directive, faults)
    if faults:
        raise invalid(faults)
    return directive if directive != Directive() else None


def _handed_on(
    raw: Raw, directive: Directive, *, now: float, parent: HandoffContext | None, limits: Limits | None
) -> Directive:
    package = read_context(raw, path=f"{_PATH}.{Verb.HANDOFF}", now=now, limits=limits, parent=parent)
    options = replace(package.options, mode=package.options.mode or Mode.TRANSFER)
    return replace(
        directive,
        verb=Verb.HANDOFF,
        package=replace(package, options=options),
        handed_on=bytes(raw),
    )


class _Answer(msgspec.Struct):
    """The members of ``ready``, ``declined`` and ``release``."""

    offer_id: str = ""
    reason: str = ""
    receipt: Raw = Raw(b"")


def _answer(verb: Verb, raw: Raw, directive: Directive, faults: list[Violation]) -> Directive:
    if verb is Verb.READY and bytes(raw) in (b"true", b"false"):
        return replace(directive, verb=verb if bytes(raw) == b"true" else Verb.DECLINED)
    path = f"{_PATH}.{verb}"
    answer = read_record(_Answer, raw, path, faults)
    check_names(faults, f"{path}.offer_id", answer.offer_id)
    return Directive(
        verb=verb,
        offer_id=answer.offer_id,
        reason=answer.reason[:REASON_CHARS],
        receipt=_receipt(answer.receipt, path, faults) or directive.receipt,
    )


def _receipt(raw: Raw | None, path: str, faults: list[Violation]) -> bytes:
    value = b"" if raw is None else bytes(raw)
    if value in (b"", b"null"):
        return b""
    if not value.startswith(b"{") or len(value) > RECEIPT_BYTES_MAX:
        add_fault(faults, f"{path}.receipt", f"must be an object of at most {RECEIPT_BYTES_MAX} bytes")
    return value
