"""The hand-written encoder says what the SDK's says, byte for byte."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource

from a2a_handoff import __version__
from a2a_handoff.core.spans import SpanEvent, SpanKind, SpanLink, SpanRecord
from a2a_handoff.telemetry.exporting import SCHEMA_URL, SCOPE, Services, readable
from a2a_handoff.telemetry.otlp import encode_request, encode_scope, nanoseconds
from tests.telemetry.story import tales

BROKER = Resource.create({"service.name": "a2a-handoff"})
SDK_INT = st.integers(-(2**63), 2**63 - 1)
VALUES = st.one_of(
    st.text(), st.booleans(), SDK_INT, st.floats(allow_nan=False), st.lists(st.text(), max_size=4).map(tuple)
)
ATTRIBUTES = st.dictionaries(st.text(min_size=1), VALUES, max_size=5)
TIMES = st.floats(0, 4e9)


def hexes(digits):
    return st.text("0123456789abcdef", min_size=digits, max_size=digits).filter(lambda s: int(s, 16))


RECORDS = st.builds(
    SpanRecord,
    name=st.text(),
    kind=st.sampled_from(SpanKind),
    trace_id=hexes(32),
    span_id=hexes(16),
    parent_span_id=st.one_of(st.just(""), hexes(16)),
    start=TIMES,
    end=TIMES,
    attributes=ATTRIBUTES,
    parent_remote=st.booleans(),
    events=st.lists(st.builds(SpanEvent, st.text(), TIMES, ATTRIBUTES), max_size=3).map(tuple),
    links=st.lists(st.builds(SpanLink, hexes(32), hexes(16), ATTRIBUTES), max_size=3).map(tuple),
    failed=st.booleans(),
    service=st.sampled_from(["", "agent-b", "агент"]),
)


def ours(spans, services):
    resources = services.encoded({span.service for span in spans})
    return encode_request(spans, resources, encode_scope(SCOPE, __version__), SCHEMA_URL)


def theirs(spans, services):
    return encode_spans([readable(span, services) for span in spans]).SerializeToString()


@given(st.lists(RECORDS, min_size=1, max_size=5))
@settings(deadline=None)
def test_any_span_means_what_the_sdk_would_have_encoded(spans):
    spans = [span if span.parent_span_id else replace(span, parent_remote=False) for span in spans]
    services = Services(BROKER)
    request = ExportTraceServiceRequest.FromString
    assert request(ours(spans, services)) == request(theirs(spans, services))


@given(tales())
@settings(deadline=None, max_examples=25)
def test_the_spans_of_any_tale_are_encoded_as_the_sdk_encodes_them(story):
    services = Services(BROKER)
    assert ours(story.spans, services) == theirs(story.spans, services)


def test_half_a_surrogate_pair_does_not_stop_the_export():
    span = SpanRecord(
        name="\ud800", kind=SpanKind.SERVER, trace_id="1" * 32, span_id="1" * 16, parent_span_id="",
        start=1.0, end=2.0, attributes={"a": "\ud800"},
    )  # fmt: skip
    assert ours([span], Services(BROKER))


def test_a_thousand_agents_do_not_pile_up_resources(monkeypatch):
    monkeypatch.setattr(Services, "_LIMIT", 100)
    services = Services(BROKER)
    for number in range(1_000):
        assert services.encoded({f"agent-{number}"})[f"agent-{number}"]
        assert services.resource(f"agent-{number}").attributes["service.name"] == f"agent-{number}"
    assert len(services._encoded) <= 101
    assert len(services._known) <= 101


def test_times_before_the_epoch_are_the_epoch():
    assert nanoseconds(-1.0) == 0
