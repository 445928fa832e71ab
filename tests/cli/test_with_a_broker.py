"""The commands against a real broker: what it answers is what they read."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_process import start


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    process = start(
        "serve", "--port", "0", "--store", f"sqlite:///{tmp_path}/handoffs.db", "--wait-for-agent", "0",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    ready = process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+", ready)
    assert found, process.communicate(timeout=30)[1]
    yield found.group()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert process.returncode in (0, -signal.SIGTERM)
    assert out == ""


def test_a_task_that_nobody_takes_can_be_followed_through_every_command(broker: str, run: Run) -> None:
    def ask(*args: str) -> tuple[int, str, str]:
        return run(*args, "--url", broker)

    assert ask("agents", "list")[0] == 0
    code, out, _ = ask("resolve", "Fly", "--capability", "canFly")
    assert (code, out.splitlines()[0]) == (1, "nobody: no_capable_agent")

    code, out, err = ask("send", "Fly", "--capability", "canFly", "--correlation-id", "order-7")
    assert (code, out) == (1, "")
    handoff_id = err.splitlines()[0].removeprefix("handoff ")
    assert err.splitlines()[-1].startswith(f"returned  handoff {handoff_id}  trace ")

    code, out, _ = ask("handoffs", "list", "--json", "--state", "returned", "--correlation-id", "order-7")
    assert [each["handoff_id"] for each in json.loads(out)["handoffs"]] == [handoff_id]
    assert handoff_id in ask("handoffs", "list")[1]
    assert "no_capable_agent" in ask("handoffs", "show", handoff_id)[1]
    assert "handoff_returned" in ask("handoffs", "events", handoff_id)[1]
    assert ask("chain", "order-7")[1].startswith("chain order-7  returned  with cli  1 handoff, 0 hops\n")

    assert ask("handoffs", "show", "nothing")[0] == 1
    code, _, err = ask("send", "Fly", "--mode", "sideways")
    assert code == 1
    assert "handoff_context.mode: must be one of" in err
