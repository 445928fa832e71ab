"""Values added up, cumulative since the start of the process.

Duty: counters and histograms by their labels, and the exemplars of the histograms.
Why not OpenTelemetry's own: a value costs its instruments ten microseconds, a handoff brings nine, and the
thread that adds them shares the interpreter with the event loop. This takes one.
Rules: every instrument has its labels in the order of its row; at most ``SERIES_MAX`` sets of them. What is
over that is added up over agents, whose names are then ``OVERFLOW``, and not over outcomes: a success among
a thousand agents must not look like a failure.
Not here: what is measured (``instruments``), how it leaves (``metrics``).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from a2a_handoff.core.spans import AttributeValue
from a2a_handoff.telemetry.instruments import InstrumentRow, Measurement

SERIES_MAX = 2_000
OVERFLOW = "_OVERFLOW"

Labels = tuple[AttributeValue | None, ...]


class Exemplar(NamedTuple):
    """A value and the span that it was measured in; ids are lower-case hex, ``at`` epoch seconds."""

    value: float
    trace_id: str
    span_id: str
    at: float


class Point:
    """What one series has come to. ``counts`` are those of the buckets, the last is above every edge."""

    __slots__ = ("count", "counts", "exemplars", "largest", "smallest", "total")

    def __init__(self, buckets: int) -> None:
        self.total = 0.0
        self.count = 0
        self.smallest = math.inf
        self.largest = -math.inf
        self.counts = [0] * (buckets + 1)
        self.exemplars: list[Exemplar | None] = [None] * (buckets + 1)


class Series:
    """The points of one instrument."""

    def __init__(self, row: InstrumentRow) -> None:
        self.row = row
        self.points: dict[Labels, Point] = {}
        names_agents = [name.endswith(".agent.name") for name in row.attributes]
        self._unbounded = names_agents if any(names_agents) else [True] * len(names_agents)

    def point(self, labels: Labels) -> Point:
        """The point of a set of labels."""
        point = self.points.get(labels)
        if point is None:
            if len(self.points) >= SERIES_MAX:
                labels = tuple(
                    OVERFLOW if unbounded else label
                    for label, unbounded in zip(labels, self._unbounded, strict=True)
                )
            point = self.points.setdefault(labels, Point(len(self.row.buckets)))
        return point


class Tally:
    """Adds up. Not safe for threads: whoever adds or reads holds the recorder's lock."""

    def __init__(self, rows: Sequence[InstrumentRow]) -> None:
        self._series = {row.name: Series(row) for row in rows}

    def __iter__(self) -> Iterator[Series]:
        return iter(self._series.values())

    def add(self, measurement: Measurement, span: tuple[str, str, float] | None = None) -> None:
        """Add a value. ``span`` (trace id, span id, time) is kept as the exemplar of its bucket."""
        series = self._series[measurement.instrument]
        read = measurement.attributes.get
        point = series.point(tuple([read(name) for name in series.row.attributes]))
        value = max(0.0, measurement.value)
        point.total += value
        edges = series.row.buckets
        if edges:
            bucket = bisect_left(edges, value)
            point.counts[bucket] += 1
            point.count += 1
            point.smallest = min(point.smallest, value)
            point.largest = max(point.largest, value)
            if span is not None:
                point.exemplars[bucket] = Exemplar(value, *span)

    def observe(self, instrument: str, readings: Iterable[tuple[float, Labels]]) -> None:
        """Set what is read rather than added up."""
        series = self._series[instrument]
        series.points.clear()
        for value, labels in readings:
            series.point(labels).total = value
