"""Which trace a chain is, and what a hop hangs below."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.core.tracing import (
    HopTrace,
    InboundTrace,
    ParentSource,
    ServerSpan,
    SpanRef,
    agent_span_id,
    derived_span_id,
    keeps,
    parse_traceparent,
    parse_tracestate,
    plan_hop,
    root_span_id,
    shows_itself,
    trace_id_of,
)
from tests.telemetry.story import Post

CHAIN = "0af76519-16cd-4dd8-8448-eb211c80319c"
TRACE = CHAIN.replace("-", "")
AGENT_SPAN = f"00-{TRACE}-b7ad6b7169203331-01"
OTHER_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OTHER = f"00-{OTHER_TRACE}-00f067aa0ba902b7-01"
STORED = SpanRef(trace_id=TRACE, span_id="5" * 16)
FRESH = "0198c0de-0000-7000-8000-00000000abcd"


def plan(correlation_id=CHAIN, *, call=None, **inbound):
    options = {k: inbound.pop(k) for k in ("stored", "known_chain", "ratio", "tenant") if k in inbound}
    ids = iter(f"{n:016x}" for n in range(1, 9))
    given_trace: dict[str, Any] = {"trusted": True, **inbound}
    return plan_hop(
        correlation_id=correlation_id,
        tenant=options.pop("tenant", "default"),
        new_correlation_id=FRESH,
        inbound=InboundTrace(**given_trace),
        call=call or Post(),
        new_span_id=lambda: next(ids),
        **options,
    )


def server(trace: HopTrace) -> ServerSpan:
    """The span of the request; fails if there is none."""
    assert trace.server is not None
    return trace.server


# --- ids -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 7])
def test_a_uuid_of_version_4_or_7_is_the_trace_id(version):
    correlation_id = f"00000000-0000-{version}000-8000-00000000abcd"
    assert trace_id_of(correlation_id) == correlation_id.replace("-", "")
    assert trace_id_of(correlation_id.upper()) == correlation_id.replace("-", "")


@pytest.mark.parametrize(
    "correlation_id",
    [
        "order-42",
        "订单-1",
        "x" * 200,
        "A" * 32,
        str(uuid.UUID(int=0)),
        "00000000-0000-1000-8000-00000000abcd",
        "\ud800",
    ],
)
def test_c058_any_other_id_is_hashed_to_a_trace_id_that_every_replica_finds(correlation_id):
    trace_id = trace_id_of(correlation_id)
    assert trace_id == trace_id_of(correlation_id)
    assert parse_traceparent(f"00-{trace_id}-{'1' * 16}-01") is not None
    assert trace_id != trace_id_of(correlation_id, "acme")


def test_the_hashes_are_part_of_the_contract():
    assert trace_id_of("order-42") == "142c60aa619648055bbe4f521b4099de"
    assert trace_id_of("order-42", "acme") == "1da3d8be211b98d15090aa2cc7fad7ad"
    assert root_span_id(TRACE) == "5884baf5c1e380ea"
    assert derived_span_id("b7ad6b7169203331", "agent") == "4570a513d42a76ff"


@pytest.mark.parametrize("correlation_id", ["", "0" * 32])
def test_c058_no_id_and_an_id_of_zeros_get_a_fresh_one(correlation_id):
    trace, name = plan(correlation_id)
    assert name == FRESH
    assert trace.trace_id == FRESH.replace("-", "")


def test_c057_leading_zeros_are_kept():
    ref = SpanRef(trace_id="0" * 28 + "abcd", span_id="0" * 12 + "beef")
    assert parse_traceparent(ref.traceparent) == ref
    assert len(ref.traceparent) == 55


@given(st.uuids(version=4), st.sampled_from([0.05, 0.25, 0.5]))
def test_sampling_looks_at_the_low_56_bits_alone(correlation_id, ratio):
    trace_id = trace_id_of(str(correlation_id))
    assert keeps(trace_id, ratio) == keeps("f" * 18 + trace_id[18:], ratio)


def test_a_tenth_of_all_chains_is_kept_at_a_ratio_of_a_tenth():
    chance = random.Random(7)
    uuids = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(5_000)]
    assert 400 < sum(keeps(trace_id_of(one), 0.1) for one in uuids) < 600
    assert 400 < sum(keeps(trace_id_of(f"order-{n}"), 0.1) for n in range(5_000)) < 600


def test_ratio_one_keeps_all_and_ratio_zero_none():
    assert keeps("f" * 32, 1.0)
    assert not keeps("0" * 31 + "1", 0.0)


@pytest.mark.parametrize(
    "header",
    ["", "00", f"ff-{TRACE}-{'1' * 16}-01", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{TRACE}-{'0' * 16}-01",
     f"00-{TRACE.upper()}-{'1' * 16}-01", f"00-{TRACE}-{'1' * 16}-01-more"],
)  # fmt: skip
def test_a_broken_traceparent_is_no_traceparent(header):
    assert parse_traceparent(header) is None


def test_a_later_version_may_carry_more():
    assert parse_traceparent(f"01-{TRACE}-{'1' * 16}-01-more") is not None


@pytest.mark.parametrize("header", ["a=1\r\nX-Evil: 1", "a=" + "1" * 600, "ä=1"])
def test_a_tracestate_that_cannot_be_a_header_is_dropped(header):
    assert parse_tracestate(header) == ""


# --- parents -------------------------------------------------------------------------------------


def test_a_first_hop_without_any_trace_hangs_below_its_request_and_that_below_the_root():
    trace, name = plan()
    assert name == CHAIN
    assert trace.trace_id == TRACE
    assert trace.parent_source is ParentSource.ROOT
    assert server(trace).parent_span_id == root_span_id(TRACE)
    assert trace.parent_span_id == server(trace).span.span_id
    assert trace.links == ()


def test_an_agent_that_sent_nothing_hangs_below_its_stored_span():
    trace, _ = plan(stored=STORED, known_chain=True)
    assert trace.parent_source is ParentSource.STORED
    assert server(trace).parent_span_id == STORED.span_id


@pytest.mark.parametrize("carrier", ["http", "context"])
def test_a_span_of_the_chains_own_trace_is_the_parent(carrier):
    trace, _ = plan(stored=STORED, known_chain=True, **{carrier: AGENT_SPAN})
    assert trace.parent_source is ParentSource.PROPAGATED
    assert server(trace).parent_span_id == "b7ad6b7169203331"
    assert trace.root_parent is None


def test_an_agent_that_only_passes_on_its_callers_span_hangs_below_the_span_that_stands_for_it():
    invoked = "b7ad6b7169203331"
    stands_in = SpanRef(trace_id=TRACE, span_id=agent_span_id(invoked))
    for carrier in ("http", "context"):
        trace, _ = plan(stored=stands_in, known_chain=True, **{carrier: AGENT_SPAN})
        assert trace.parent_source is ParentSource.STORED
        assert server(trace).parent_span_id == stands_in.span_id
    trace, _ = plan(stored=stands_in, known_chain=True, context=AGENT_SPAN, http=f"00-{TRACE}-{'c' * 16}-01")
    assert server(trace).parent_span_id == "c" * 16


def test_passing_on_the_callers_span_is_no_span_of_its_own():
    invoked = "b7ad6b7169203331"
    assert not shows_itself(AGENT_SPAN, trace_id=TRACE, invoked=invoked)
    assert shows_itself(AGENT_SPAN, trace_id=TRACE, invoked="5" * 16)
    assert not shows_itself(OTHER, trace_id=TRACE, invoked=invoked)
    assert not shows_itself("", trace_id=TRACE, invoked=invoked)
    assert not shows_itself("nonsense", trace_id=TRACE, invoked=invoked)


def test_the_span_in_the_context_goes_before_the_one_in_the_header():
    trace, _ = plan(context=AGENT_SPAN, http=f"00-{TRACE}-{'c' * 16}-01", known_chain=True)
    assert server(trace).parent_span_id == "b7ad6b7169203331"


def test_the_trace_of_a_gateway_in_between_is_only_linked():
    trace, _ = plan(context=AGENT_SPAN, http=OTHER, known_chain=True)
    assert server(trace).span.trace_id == TRACE
    assert trace.links == (parse_traceparent(OTHER),)


def test_an_unsampled_span_is_skipped_because_nobody_exports_it():
    trace, _ = plan(http=AGENT_SPAN[:-2] + "00", stored=STORED)
    assert trace.parent_source is ParentSource.STORED
    foreign, _ = plan(http=OTHER[:-2] + "00")
    assert foreign.links == ()
    assert server(foreign).span.trace_id == TRACE


def test_another_trace_keeps_the_request_and_both_are_linked():
    trace, name = plan(http=OTHER)
    assert name == CHAIN
    assert server(trace).span.trace_id == OTHER_TRACE
    assert server(trace).parent_span_id == "00f067aa0ba902b7"
    assert trace.links == (server(trace).span,)
    assert trace.parent_span_id == root_span_id(TRACE)
    assert trace.parent_source is ParentSource.ROOT


def test_c056_a_caller_without_a_correlation_id_has_its_trace_continued():
    trace, name = plan("", http=OTHER, tracestate="vendor=1")
    assert name == OTHER_TRACE
    assert trace.trace_id == OTHER_TRACE
    assert trace.root_parent == parse_traceparent(OTHER)
    assert server(trace).parent_span_id == "00f067aa0ba902b7"
    assert trace.tracestate == "vendor=1"


def test_a_caller_that_names_its_own_trace_as_the_chain_has_the_root_below_it():
    trace, _ = plan(http=AGENT_SPAN)
    assert trace.root_parent == parse_traceparent(AGENT_SPAN)
    again, _ = plan(http=AGENT_SPAN, known_chain=True)
    assert again.root_parent is None


def test_a_caller_that_names_the_root_itself_does_not_make_it_its_own_parent():
    trace, _ = plan(http=f"00-{TRACE}-{root_span_id(TRACE)}-01")
    assert trace.root_parent is None


def test_in_another_tenant_a_trace_cannot_be_a_name_and_is_linked_instead():
    trace, name = plan("", http=OTHER, tenant="acme")
    assert name == FRESH
    assert trace.trace_id == trace_id_of(FRESH, "acme")
    assert trace.links == (server(trace).span,)


@pytest.mark.parametrize("inbound", [{"trusted": False}, {"policy": "restart"}])
def test_a_stranger_is_linked_and_never_continued(inbound):
    trace, name = plan("", http=OTHER, tracestate="vendor=1", **inbound)
    assert name == FRESH
    assert server(trace).span.trace_id == trace.trace_id
    assert trace.links == (parse_traceparent(OTHER),)
    assert trace.tracestate == ""
    inside, _ = plan(http=AGENT_SPAN, **inbound)
    assert inside.parent_source is ParentSource.ROOT


def test_with_the_policy_drop_nothing_is_heard():
    trace, name = plan("", http=OTHER, policy="drop", trusted=False)
    assert name == FRESH
    assert trace.links == ()


def test_tracestate_is_passed_on_only_within_its_trace():
    assert plan(context=AGENT_SPAN, http=OTHER, tracestate="a=1")[0].tracestate == ""
    assert plan(http=AGENT_SPAN, tracestate="a=1")[0].tracestate == "a=1"


def test_a_directive_has_no_request_and_so_no_server_span():
    trace, _ = plan(stored=STORED, call=Post(started_at=0.0))
    assert trace.server is None
    assert trace.parent_span_id == STORED.span_id


def test_a_chain_keeps_its_decision_on_sampling():
    kept = SpanRef(trace_id=TRACE, span_id="5" * 16, sampled=True)
    assert plan(stored=kept, ratio=0.0)[0].sampled
    assert not plan(stored=SpanRef(trace_id=TRACE, span_id="5" * 16, sampled=False))[0].sampled


hexes = st.text("0123456789abcdef", min_size=16, max_size=16).filter(lambda s: s != "0" * 16)
headers = st.one_of(
    st.just(""),
    st.just("nonsense"),
    st.builds(
        lambda trace, span, flag: f"00-{trace}-{span}-{flag}",
        st.sampled_from([TRACE, OTHER_TRACE, "1" * 32]),
        hexes,
        st.sampled_from(["00", "01"]),
    ),
)


@given(
    st.fixed_dictionaries(
        {
            "correlation_id": st.sampled_from(["", CHAIN, "order-42", OTHER_TRACE]),
            "tenant": st.sampled_from(["default", "acme"]),
            "http": headers,
            "context": headers,
            "trusted": st.booleans(),
            "policy": st.sampled_from(["continue", "restart", "drop"]),
            "stored": st.booleans(),
            "call": st.sampled_from([Post(), Post(started_at=0.0)]),
        }
    )
)
def test_the_parent_is_always_in_the_hops_own_trace_or_comes_from_a_trusted_sampled_caller(given_):
    correlation_id, tenant, stored = (given_.pop(k) for k in ("correlation_id", "tenant", "stored"))
    known = SpanRef(trace_id=trace_id_of(correlation_id, tenant), span_id="5" * 16)

    def run():
        return plan(
            correlation_id, tenant=tenant, stored=known if stored and correlation_id else None, **given_
        )

    http, context, trusted, policy = (given_[k] for k in ("http", "context", "trusted", "policy"))
    trace, name = run()
    assert (trace, name) == run()
    assert trace.trace_id == trace_id_of(name, tenant)
    heard = {ref.span_id for ref in map(parse_traceparent, (http, context)) if ref and ref.sampled}
    heard = heard if trusted and policy == "continue" else set()
    ours = {root_span_id(trace.trace_id), "5" * 16} | heard
    if trace.server is not None and server(trace).span.trace_id == trace.trace_id:
        assert trace.parent_span_id == server(trace).span.span_id
        assert server(trace).parent_span_id in ours
    else:
        assert trace.parent_span_id in ours
    assert all(link.trace_id != trace.trace_id for link in trace.links)
    assert len({link.trace_id for link in trace.links}) == len(trace.links)
    if policy == "drop":
        assert trace.links == ()
