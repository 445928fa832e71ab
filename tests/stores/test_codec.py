"""Events, handoffs, agents and webhooks survive the way to bytes and back."""

from __future__ import annotations

import types
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_handoff.core.agents import Agent
from a2a_handoff.core.events import Event
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.core.policy import Policy
from a2a_handoff.ports import StoreUnavailable, Webhook
from a2a_handoff.stores.codec import (
    decode_agent,
    decode_event,
    decode_handoff,
    decode_webhook,
    encode_agent,
    encode_event,
    encode_handoff,
    encode_webhook,
)
from tests.support.builders import make_handoff, offered_event

PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    bytes: st.binary(max_size=8),
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    type(None): st.none(),
}


@cache
def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, as the annotations of the core have it."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return st.one_of(*[values_of(arg) for arg in args])
    if origin is tuple:
        if args[-1] is Ellipsis:
            return st.lists(values_of(args[0]), max_size=2).map(tuple)
        return st.tuples(*[values_of(arg) for arg in args])
    if origin is dict:
        return st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=2)
    if origin is frozenset:
        return st.frozensets(values_of(args[0]), max_size=2)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return st.sampled_from(list(kind))
    return st.builds(kind, **{name: values_of(hint) for name, hint in get_type_hints(kind).items()})


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
def test_every_event_comes_back_equal(kind: type[Event]) -> None:
    @settings(max_examples=20, deadline=None)
    @given(values_of(kind))
    def check(event: Any) -> None:
        name, body = encode_event(event)
        assert name == kind.__name__
        assert decode_event(name, body) == event

    check()


@settings(max_examples=30, deadline=None)
@given(values_of(Handoff))
def test_every_handoff_comes_back_equal(handoff: Handoff) -> None:
    assert decode_handoff(encode_handoff(handoff)) == handoff


@settings(max_examples=30, deadline=None)
@given(values_of(Agent))
def test_every_agent_comes_back_equal(agent: Agent) -> None:
    assert decode_agent(encode_agent(agent)) == agent


@settings(max_examples=30, deadline=None)
@given(values_of(Webhook))
def test_every_webhook_comes_back_equal(webhook: Webhook) -> None:
    assert decode_webhook(encode_webhook(webhook)) == webhook


def test_an_event_of_a_newer_version_is_refused_with_its_name() -> None:
    with pytest.raises(StoreUnavailable, match=r"'HandoffTeleported'.*upgrade a2a-handoff"):
        decode_event("HandoffTeleported", b"\x80")


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x80", b"\x81\xa2id\x07"])
def test_bytes_that_are_no_snapshot_are_refused(body: bytes) -> None:
    with pytest.raises(StoreUnavailable, match="Handoff cannot be read"):
        decode_handoff(body)


def structs_of(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Every struct that a value of a type is made of."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for hint in get_type_hints(kind).values():
            yield from structs_of(hint)
    for arg in get_args(kind):
        yield from structs_of(arg)


def test_defaults_are_not_written_but_those_of_the_policy() -> None:
    kept = {*structs_of(Event), *structs_of(Handoff)}
    assert {kind for kind in kept if not kind.__struct_config__.omit_defaults} == {Policy}


def test_a_field_that_was_added_later_takes_its_default_from_old_logs() -> None:
    name, body = encode_event(offered_event())
    fields = msgspec.msgpack.decode(body)
    del fields["ack_due_at"]
    old = msgspec.msgpack.encode(fields | {"once_known": 1})
    assert decode_event(name, old) == msgspec.structs.replace(offered_event(), ack_due_at=0.0)


def test_text_that_is_not_unicode_cannot_be_written() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_handoff(make_handoff(sender="\ud800"))
