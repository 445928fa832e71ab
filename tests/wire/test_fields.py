"""Values as they are written."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.wire.fields import write_instant


@given(st.floats(-1e9, 4e9) | st.integers(0, 4_000_000_000_000).map(lambda ms: ms / 1000))
def test_a_time_is_written_as_the_library_writes_it(at: float):
    library = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    assert write_instant(at) == library.replace("+00:00", "Z")
