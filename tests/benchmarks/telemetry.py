"""What telemetry costs a handoff: on the path of the request, and in the threads beside it.

Run by hand: ``python -m tests.benchmarks.telemetry``. CPU time, not wall time, the best of several rounds. The
lines *in all* are the ones that count: what one straight handoff (three changes, seven spans, eight
measurements) costs. Its collector only counts bytes, but it does so in this process too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource

from a2a_handoff.config import Settings
from a2a_handoff.core import commands as cmd
from a2a_handoff.ports import Change
from a2a_handoff.telemetry import Telemetry
from a2a_handoff.telemetry.exporting import Services, readable
from a2a_handoff.telemetry.instruments import measure
from a2a_handoff.telemetry.otlp import _key_value, encode_request
from tests.support.otlp_receiver import OtlpReceiver
from tests.telemetry.story import Story, spans_of_step

HANDOFFS = 200
ROUNDS = 15


def stories() -> list[Story]:
    out: list[Story] = []
    for number in range(HANDOFFS):
        story = Story()
        story._ids = number * 100
        h = story.request("agent-b")
        story.ack(h, score=0.9)
        story.do(h, cmd.Complete())
        out.append(story)
    return out


def cpu(name: str, work: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """Microseconds of CPU for one handoff."""
    best = float("inf")
    for _ in range(ROUNDS):
        before()
        started = time.process_time()
        work()
        best = min(best, (time.process_time() - started) / HANDOFFS * 1e6)
    print(f"{name:<62}{best:8.1f} µs")
    return best


def main() -> None:
    told = stories()
    steps = [step for story in told for step in story.steps]
    changes: list[Change] = [change for story in told for change in story.changes]
    spans = [span for story in told for span in story.spans]
    services = Services(Resource.create({}))
    resources = services.encoded({span.service for span in spans})
    cpu("derive spans", lambda: [spans_of_step(step) for step in steps])
    cpu("derive measurements", lambda: [measure(s.before, s.event, s.after, lambda _t, a: a) for s in steps])
    ours = cpu(
        "encode spans", lambda: encode_request(spans, resources, b"", ""), before=_key_value.cache_clear
    )
    theirs = cpu(
        "encode spans with the SDK",
        lambda: encode_spans([readable(span, services) for span in spans]).SerializeToString(),
    )
    print(f"{'the SDK takes':<62}{theirs / ours:8.1f} times as long")
    for exporting in (False, True):
        with OtlpReceiver() as receiver:
            receiver.status = 400  # takes the bytes and does not decode them
            if exporting:
                os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = receiver.endpoint
            telemetry = Telemetry(Settings(), known_agent=lambda _tenant, _agent: True)
            what = "with an exporter" if exporting else "without an exporter"

            def note(to: Telemetry = telemetry) -> None:
                for change in changes:
                    to.record(change)

            with telemetry._working:  # the thread beside waits meanwhile
                cpu(f"record, on the path of the request, {what}", note, before=telemetry._notes.clear)
            telemetry.flush()
            cpu(f"in all, {what}", lambda t=telemetry, n=note: (n(), t.flush()))
            lost = {k: n for k, n in telemetry.dropped.items() if n and k != "export_failed"}
            print(f"lost: {lost or 'nothing'}")
            telemetry.shutdown()


if __name__ == "__main__":
    main()
