"""One chain, one trace: through a broker and three agents, each a process of its own.

One agent has spans of its own, one passes on what it gets, one knows nothing of traces. The collector is in
the test's process. A tree of the how-to page is the one that is found here.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from a2a_handoff.core.tracing import root_span_id, trace_id_of
from tests.support.otlp_receiver import OtlpReceiver, Span
from tests.support.served import Served, served
from tests.support.traced_agent import Agents, Plan, agents

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FOREIGN, ABOVE = CALLER.split("-")[1:3]
#: How often the broker notes up to where spans have left.
MARKED_EVERY_S = 5
GUIDE = Path(__file__).parents[2] / "docs/how-to/trace-a-chain.md"

INSTRUMENTED = Plan("one", "instrumented", next="two")
PASSES_ON = Plan("two", "passes_on", next="three")
SILENT = Plan("three", "silent")

#: Below the request that brought the task: one has spans, two hands on what it got, three has none.
HOPS = """\
[a2a-handoff] handoff one (internal)
  [a2a-handoff] route_handoff (internal)
  [a2a-handoff] invoke_agent one (client)
    [one] work (server)
      [one] ask for help (client)
        [a2a-handoff] POST / (server)
          [a2a-handoff] handoff two (internal)
            [a2a-handoff] route_handoff (internal)
            [a2a-handoff] invoke_agent two (client)
              [two] invoke_agent two (server)
                [a2a-handoff] POST / (server)
                  [a2a-handoff] handoff three (internal)
                    [a2a-handoff] route_handoff (internal)
                    [a2a-handoff] invoke_agent three (client)
                      [three] invoke_agent three (server)
            [a2a-handoff] handoff_outcome two (internal)
  [a2a-handoff] handoff_outcome one (internal)"""

EDGES = {
    ("a2a-handoff", "one"), ("one", "a2a-handoff"), ("a2a-handoff", "two"), ("two", "a2a-handoff"),
    ("a2a-handoff", "three"),
}  # fmt: skip
_ORDER = ("handoff_chain", "POST", "handoff", "route_handoff", "invoke_agent", "handoff_outcome")


class Collector(Protocol):
    """Whoever takes spans."""

    @property
    def endpoint(self) -> str: ...


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as made:
        yield made


@contextmanager
def four(
    folder: Path, receiver: Collector, *plans: Plan, export_ms: int = 20
) -> Generator[tuple[Served, Agents]]:
    """The broker and the agents, all of them processes. Spans leave the broker every ``export_ms``."""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_BSP_SCHEDULE_DELAY": str(export_ms)}
    with (
        served(folder, env=env, forked=True, reconcile_every=0.5) as broker,
        agents(broker.url, receiver.endpoint) as staff,
    ):
        for plan in plans:
            broker.register(**staff.start(plan))
        yield broker, staff


def tree(receiver: OtlpReceiver, trace_id: str, top: str = "") -> str:
    """What hangs below the span ``top`` (the roots, if it is empty), each child below its parent."""
    below: dict[str, list[Span]] = {}
    for span in receiver.trace(trace_id):
        below.setdefault(span.parent_id, []).append(span)

    def rank(span: Span) -> tuple[int, str]:
        word = span.name.split(" ")[0]
        return (_ORDER.index(word) if word in _ORDER else len(_ORDER), span.name)

    def lines(parent: str, depth: int) -> Iterator[str]:
        for span in sorted(below.get(parent, []), key=rank):
            yield f"{'  ' * depth}[{span.service}] {span.name} ({span.kind})"
            yield from lines(span.span_id, depth + 1)

    return "\n".join(lines(top, 0))


def below(*lines: str) -> str:
    """A tree of trees: each further one a step deeper."""
    return "\n".join("  " * depth + line for depth, text in enumerate(lines) for line in text.split("\n"))


def grows_to(receiver: OtlpReceiver, expected: str, trace_id: str, top: str = "") -> None:
    """The tree is the expected one, once all of it has arrived; then there are no orphans."""
    try:
        receiver.wait_for(lambda _: tree(receiver, trace_id, top) == expected, timeout_s=15)
    except AssertionError:
        assert tree(receiver, trace_id, top) == expected
    known = frozenset({top}) if top else frozenset[str]()
    assert receiver.orphans(trace_id, known=known) == []


def the(receiver: OtlpReceiver, trace_id: str, name: str) -> Span:
    """The one span of a name."""
    (span,) = [span for span in receiver.trace(trace_id) if span.name == name]
    return span


PLAIN = below("[a2a-handoff] handoff_chain (internal)", "[a2a-handoff] POST / (server)", HOPS)


def test_a_chain_is_one_trace_whose_id_is_that_of_its_correlation(
    receiver: OtlpReceiver, tmp_path: Path
) -> None:
    chain = str(uuid.uuid4())
    with four(tmp_path, receiver, INSTRUMENTED, PASSES_ON, SILENT) as (b, _):
        task = b.send("go", wait=True, context={"target_agent": "one", "correlation_id": chain})
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        told = b.http.get(f"/api/chains/{chain}").json()
        trace_id = chain.replace("-", "")
        grows_to(receiver, PLAIN, trace_id)
    assert told["trace_id"] == trace_id == trace_id_of(chain)
    assert receiver.one_root(trace_id).span_id == root_span_id(trace_id)
    assert receiver.edges(trace_id) == EDGES
    of_chain = {
        s.attributes.get("handoff.correlation_id")
        for s in receiver.trace(trace_id)
        if s.scope == "a2a_handoff"
    }
    assert of_chain == {chain}
    assert [h["handoff_chain"] for h in told["handoffs"]][-1] == ["triage", "one", "two", "three"]


def test_a_business_id_leads_to_its_trace_as_well(receiver: OtlpReceiver, tmp_path: Path) -> None:
    with four(tmp_path, receiver, INSTRUMENTED, PASSES_ON, SILENT) as (b, _):
        b.send("go", wait=True, context={"target_agent": "one", "correlation_id": "order-42"})
        grows_to(receiver, PLAIN, trace_id_of("order-42"))


def test_a_caller_with_a_trace_and_a_correlation_id_of_its_own_is_linked_both_ways(
    receiver: OtlpReceiver, tmp_path: Path
) -> None:
    chain = str(uuid.uuid4())
    trace_id = chain.replace("-", "")
    with four(tmp_path, receiver, INSTRUMENTED, PASSES_ON, SILENT) as (b, _):
        context = {"target_agent": "one", "correlation_id": chain}
        b.send("go", wait=True, context=context, headers={"traceparent": CALLER})
        grows_to(receiver, below("[a2a-handoff] handoff_chain (internal)", HOPS), trace_id)
        grows_to(receiver, "[a2a-handoff] POST / (server)", FOREIGN, ABOVE)
    hop, server = the(receiver, trace_id, "handoff one"), the(receiver, FOREIGN, "POST /")
    assert hop.links == ((FOREIGN, server.span_id, {"handoff.link.type": "caller"}),)
    assert server.links == ((trace_id, hop.span_id, {"handoff.link.type": "chain"}),)
    assert server.parent_remote
    assert receiver.edges(trace_id) == EDGES


def test_a_caller_with_a_trace_and_no_correlation_id_is_continued(
    receiver: OtlpReceiver, tmp_path: Path
) -> None:
    with four(tmp_path, receiver, INSTRUMENTED, PASSES_ON, SILENT) as (b, _):
        task = b.send("go", wait=True, context={"target_agent": "one"}, headers={"traceparent": CALLER})
        expected = below("[a2a-handoff] POST / (server)", HOPS)
        grows_to(receiver, f"[a2a-handoff] handoff_chain (internal)\n{expected}", FOREIGN, ABOVE)
        assert b.handoff(task["id"])["correlation_id"] == FOREIGN
    assert the(receiver, FOREIGN, "handoff_chain").span_id == root_span_id(FOREIGN)
    assert receiver.edges(FOREIGN) == EDGES


def test_an_agent_that_knows_nothing_breaks_no_trace_in_the_middle(
    receiver: OtlpReceiver, tmp_path: Path
) -> None:
    chain = str(uuid.uuid4())
    plans = (INSTRUMENTED, Plan("two", "silent", next="three"), Plan("three", "instrumented"))
    with four(tmp_path, receiver, *plans) as (b, _):
        b.send("go", wait=True, context={"target_agent": "one", "correlation_id": chain})
        # It is shown by a span of the broker's, below which its own call hangs; the last one is its own.
        expected = PLAIN.replace("[three] invoke_agent three (server)", "[three] work (server)")
        grows_to(receiver, expected, chain.replace("-", ""))
    assert receiver.edges(chain.replace("-", "")) == EDGES
    shown = [s for s in receiver.trace(chain.replace("-", "")) if s.attributes.get("handoff.synthetic")]
    assert [(span.service, span.name) for span in shown] == [("two", "invoke_agent two")]


@pytest.mark.parametrize("export_ms", [20, 60_000], ids=["that had left", "that had not left"])
def test_after_a_kill_between_two_hops_the_trace_is_whole_and_spans_are_the_same_again(
    receiver: OtlpReceiver, tmp_path: Path, export_ms: int
) -> None:
    chain = str(uuid.uuid4())
    trace_id = chain.replace("-", "")
    began = time.monotonic()
    with four(tmp_path, receiver, INSTRUMENTED, PASSES_ON, SILENT, export_ms=export_ms) as (b, staff):
        staff.gate.clear()
        task = b.send("go", context={"target_agent": "one", "correlation_id": chain})
        b.until(task["id"], "acknowledged")
        if export_ms == 20:
            receiver.wait_for(lambda spans: any(span.name == "handoff one" for span in spans))
        first = [span for span in receiver.spans if span.trace_id == trace_id]
        b.kill()
        lived_s = time.monotonic() - began
        receiver.clear()
        b.start()
        staff.gate.set()
        b.ended(task["id"])
        assert b.stop() == 0  # what waits for its export leaves now
        again = [span for span in receiver.spans if span.trace_id == trace_id]
        receiver.add(first)
        grows_to(receiver, PLAIN, trace_id)
    ours = {span.span_id: span for span in first if span.scope == "a2a_handoff"}
    assert bool(ours) == (export_ms == 20)
    # On a slow machine the broker may have noted already that they left, and then they do not again.
    twice = [span for span in again if span.span_id in ours]
    assert {span.span_id for span in twice} == ours.keys() or lived_s > MARKED_EVERY_S - 1
    assert [(span.raw, span.start, span.end) for span in twice] == [
        (ours[span.span_id].raw, ours[span.span_id].start, ours[span.span_id].end) for span in twice
    ]
    assert receiver.edges(trace_id) == EDGES


def test_a_pause_for_the_caller_leaves_the_trace_whole(receiver: OtlpReceiver, tmp_path: Path) -> None:
    chain = str(uuid.uuid4())
    trace_id = chain.replace("-", "")
    with four(tmp_path, receiver, Plan("one", "passes_on", asks=True)) as (b, _):
        task = b.send("go", wait=True, context={"target_agent": "one", "correlation_id": chain})
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        done = b.send("the blue one", wait=True, message={"taskId": task["id"]})
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        expected = below(
            "[a2a-handoff] handoff_chain (internal)",
            "[a2a-handoff] POST / (server)",
            "[a2a-handoff] handoff one (internal)",
            "[a2a-handoff] route_handoff (internal)\n[a2a-handoff] invoke_agent one (client)",
            "[one] invoke_agent one (server)",
        )
        expected += "\n      [a2a-handoff] handoff_outcome one (internal)"
        grows_to(receiver, expected, trace_id)
        events = b.events(task["id"])
    at = {event["type"].removeprefix("a2a-handoff."): event for event in events}
    work, outcome = (the_of(receiver, trace_id, kind) for kind in ("server", "outcome"))
    # The agent's span covers the pause, and the outcome is told when there is one.
    assert work.end == outcome.end > outcome.start
    assert set(at) >= {"caller_asked", "reply_received", "handoff_completed"}


def the_of(receiver: OtlpReceiver, trace_id: str, kind: str) -> Span:
    """The span of the agent's work, or of the outcome."""
    wanted = {"server": "invoke_agent one", "outcome": "handoff_outcome one"}[kind]
    found = [s for s in receiver.trace(trace_id) if s.name == wanted and s.kind != "client"]
    (span,) = found
    return span


def test_the_tree_of_the_guide_is_the_one_that_is_found() -> None:
    assert PLAIN in GUIDE.read_text(encoding="utf-8")
