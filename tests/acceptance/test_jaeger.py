"""One chain, one tree, in a real Jaeger: what an operator sees, read by Jaeger's own HTTP interface."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_demo import demo
from tests.acceptance.test_trace import EDGES, INSTRUMENTED, PASSES_ON, PLAIN, SILENT, four
from tests.support.jaeger import Jaeger, jaeger
from tests.support.wire import eventually

SPANS = PLAIN.count("\n") + 1


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Generator[Jaeger]:
    with jaeger(tmp_path_factory.mktemp("jaeger")) as made:
        yield made


class Tree:
    """A trace of Jaeger's, as a tree."""

    def __init__(self, trace: dict[str, Any]) -> None:
        self.trace_id: str = trace["traceID"]
        self.spans: dict[str, Any] = {span["spanID"]: span for span in trace["spans"]}
        self._services = {key: process["serviceName"] for key, process in trace["processes"].items()}

    def parent(self, span: Any) -> str:
        above = [
            r for r in span["references"] if r["refType"] == "CHILD_OF" and r["traceID"] == self.trace_id
        ]
        return above[0]["spanID"] if above else ""

    def service(self, span: Any) -> str:
        return self._services[span["processID"]]

    def edges(self) -> Iterator[tuple[str, str]]:
        """From one service to another, as Jaeger draws them."""
        for span in self.spans.values():
            if (above := self.parent(span)) and self.service(self.spans[above]) != self.service(span):
                yield self.service(self.spans[above]), self.service(span)


def whole(shown: Jaeger, trace_id: str) -> Tree:
    """The trace, once all its spans are there: one root, and no span without its parent."""

    def read() -> dict[str, Any] | None:
        trace = shown.trace(trace_id)
        return trace if trace is not None and len(trace["spans"]) >= SPANS else None

    tree = Tree(eventually(read, within_s=30))
    assert len(tree.spans) == SPANS, [span["operationName"] for span in tree.spans.values()]
    one_tree(tree)
    return tree


def one_tree(tree: Tree) -> None:
    """One root, and no span without its parent."""
    assert [s["operationName"] for s in tree.spans.values() if not tree.parent(s)] == ["handoff_chain"]
    assert [s for s in tree.spans.values() if tree.parent(s) not in {"", *tree.spans}] == []


def test_a_chain_is_one_tree(shown: Jaeger, tmp_path: Path) -> None:
    chain = str(uuid.uuid4())
    with four(tmp_path, shown, INSTRUMENTED, PASSES_ON, SILENT) as (b, _):
        b.send("go", wait=True, context={"target_agent": "one", "correlation_id": chain})
        tree = whole(shown, chain.replace("-", ""))
    assert tree.trace_id == chain.replace("-", "")
    assert set(tree.edges()) == EDGES
    silent = [s for s in tree.spans.values() if tree.service(s) == "three"]
    assert [span["operationName"] for span in silent] == ["invoke_agent three"], "it knows nothing of traces"
    tag = json.dumps({"handoff.correlation_id": chain})
    (found,) = eventually(lambda: shown.search("a2a-handoff", tag))
    assert found["traceID"] == tree.trace_id
    assert eventually(lambda: shown.dependencies() >= EDGES), "the graph of services has the hops too"


def test_a_restart_between_two_hops_leaves_it_whole(shown: Jaeger, tmp_path: Path) -> None:
    chain = str(uuid.uuid4())
    with four(tmp_path, shown, INSTRUMENTED, PASSES_ON, SILENT) as (b, staff):
        staff.gate.clear()
        task = b.send("go", context={"target_agent": "one", "correlation_id": chain})
        b.until(task["id"], "acknowledged")
        b.kill()
        b.start()
        staff.gate.set()
        b.ended(task["id"])
        assert b.stop() == 0
    tree = whole(shown, chain.replace("-", ""))
    assert set(tree.edges()) == EDGES


def test_a_trace_outlives_jaeger_where_it_is_kept_on_disk(tmp_path: Path) -> None:
    chain = str(uuid.uuid4())
    with (
        jaeger(tmp_path, store="badger") as first,
        four(tmp_path, first, INSTRUMENTED, PASSES_ON, SILENT) as (b, _),
    ):
        b.send("go", wait=True, context={"target_agent": "one", "correlation_id": chain})
        before = whole(first, chain.replace("-", ""))
    with jaeger(tmp_path, store="badger") as second:
        after = whole(second, chain.replace("-", ""))
    assert set(after.spans) == set(before.spans)
    assert set(after.edges()) == EDGES


def test_every_chain_of_the_demo_is_one_tree(shown: Jaeger, tmp_path: Path) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": shown.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "20"}
    with demo(tmp_path, env=env) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    (told,) = re.findall(r"trace of scene 1 is (\w{32})", output)

    def settled() -> Tree | None:
        trace = shown.trace(told)
        outcomes = [s for s in trace["spans"] if "handoff_outcome" in s["operationName"]] if trace else []
        return Tree(trace) if trace is not None and len(outcomes) == 3 else None

    tree = eventually(settled, within_s=30)
    one_tree(tree)
    hops = [s["operationName"] for s in tree.spans.values() if s["operationName"].startswith("invoke_agent")]
    assert len(hops) >= 3, hops
