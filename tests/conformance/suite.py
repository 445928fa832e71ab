"""Run a compatibility kit of the A2A project against ``a2a-handoff serve``.

``python -m tests.conformance.suite FOLDER [PYTEST ARGUMENTS]``, or ``make tck TCK=FOLDER``: FOLDER is a checkout of one
of the branches in ``SUITES``. Behind the broker stands the agent of ``suite_agent``. What is left out, and why, is said
here; ``docs/reference/conformance.md`` shows it.
Not here: what the kits test; their code is no part of this repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.suite_agent import acts, opens
from tests.support import foreign
from tests.support.agents import Agent, Script, card
from tests.support.running import running
from tests.support.served import served

#: Any media type, so that every part that a kit sends reaches the agent.
_MODES = ["text/plain", "application/json", "*/*"]


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A branch of the kit.

    ``marker`` is a file that only this branch has. ``runs`` are the arguments of pytest for each run, ``apart`` tests
    that get a broker of their own in the end. ``excluded`` has the reason for each test that is left out.
    """

    branch: str
    commit: str
    marker: str
    script: Script
    address: str
    runs: tuple[tuple[str, ...], ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    apart: tuple[str, ...] = ()
    excluded: Mapping[str, str] = field(default_factory=dict[str, str])


_CARD = "tests/compatibility/agent_card"
_CORE = "tests/compatibility/core_operations"
_PROTOCOL = "tests/mandatory/protocol"
_CAPABLE = "tests/optional/capabilities"
_SECURITY = "tests/mandatory/security/test_agent_card_security.py"

_LOOPBACK = "takes 127.0.0.1 and a port in a card for secrets; the broker of a run is on loopback"
_FIRST_SCHEMES = "wants a list for `authentication`, which in the first generation, whose member it is, is an object; 0.3 has none"
_JSON_ERROR = "accepts only a stream; a request that is refused before a stream begins is answered with a JSON-RPC error object"
_GRPC_ADDRESS = "wants http:// before an address of gRPC, which is a host and a port"
_OWN_CALL = "fails in its own code: it hands a text to its helper, which wants a message"
_PAGE_SIZE = "takes `pageSize` for the count of tasks returned; it is the size of page used (`a2a.proto`)"

SUITES = (
    Suite(
        branch="1.0-dev",
        commit="357c4a8",
        marker="tests/compatibility",
        script=acts,
        address="--sut-host",
        runs=(("tests/compatibility", "--webhook-host=127.0.0.1", "-p", "tck_ids"),),
        apart=(f"{_CORE}/test_data_model.py::TestIgnoreUnrecognizedFields",),
        excluded={
            f"{_CARD}/test_agent_card.py::TestAgentCardStructure::test_agent_card_validates_against_schema": (
                "forbids the members of 0.3 in a card of 1.0; one card serves clients of both, and readers ignore "
                "what they do not know (1.0 section 5.7)"
            ),
            f"{_CARD}/test_agent_card_caching.py::TestAgentCardLastModified": (
                "demands Last-Modified, which is a MAY (1.0 section 8.6.1); the card has an ETag"
            ),
            f"{_CORE}/test_artifacts.py::TestMessageResponse": (
                "demands a Message as the answer; a server chooses between Message and Task (1.0 section 3.1.1), and "
                "the broker answers with a task always, so that a handoff can be looked up"
            ),
            f"{_CORE}/test_data_model.py::TestCamelCaseFieldNames": (
                "takes the keys inside `metadata` and `data` for field names; they are free-form (1.0 section 5.5 "
                "speaks of the fields of the data model)"
            ),
            f"{_CORE}/test_transport_behavior.py::TestRestFormat::test_response_content_type": (
                "demands application/json; 1.0.1 prefers application/a2a+json (section 11.1)"
            ),
            "tests/compatibility/grpc/test_status_codes.py::TestGrpcStatusCodes::"
            "test_version_not_supported_returns_unimplemented": (
                "demands UNIMPLEMENTED for VersionNotSupportedError; 1.0.1 says FAILED_PRECONDITION (section 5.4)"
            ),
            "tests/compatibility/http_json/test_http_status.py::TestHttpJsonStatusCodes::"
            "test_content_type_not_supported_returns_415": (
                "demands 415 for ContentTypeNotSupportedError; 1.0.1 says 400 (section 5.4)"
            ),
            "tests/compatibility/jsonrpc/test_error_codes.py::TestJsonRpcErrorCodeMappings::"
            "test_content_type_not_supported_error": (
                "posts the text of a Python dictionary, which is no JSON; that is a parse error (JSON-RPC 2.0 "
                "section 5.1)"
            ),
        },
    ),
    Suite(
        branch="main",
        commit="410ba92",
        marker="tests/mandatory/protocol/test_tasks_list_method.py",
        script=opens,
        address="--sut-url",
        runs=(("tests/mandatory", _CAPABLE, "--test-scope=all", "-p", "tck_waits"),),
        env={"TCK_STREAMING_TIMEOUT": "2.0", "A2A_AUTH_HEADERS": '{"A2A-Version":"1.0"}'},
        excluded={
            f"{_PROTOCOL}/test_a2a_v030_new_methods.py::TestTasksList::test_tasks_list_with_existing_tasks": _OWN_CALL,
            f"{_PROTOCOL}/test_extended_agent_card.py::test_extended_agent_card_response_format": (
                "asks for an extended card that the card does not declare; the answer is "
                "UnsupportedOperationError (1.0 section 3.3.4)"
            ),
            f"{_PROTOCOL}/test_tasks_list_method.py::TestBasicListing::test_list_tasks_empty_when_none_exist": _PAGE_SIZE,
            f"{_PROTOCOL}/test_tasks_list_method.py::TestPagination::test_default_page_size": _PAGE_SIZE,
            f"{_PROTOCOL}/test_tasks_list_method.py::TestPagination::test_last_page_detection": _PAGE_SIZE,
            f"{_SECURITY}::test_sensitive_information_protection": _LOOPBACK,
            f"{_CAPABLE}/test_agent_card_optional.py::test_authentication_structure": _FIRST_SCHEMES,
            f"{_CAPABLE}/test_agent_card_optional.py::test_agent_interfaces_structure": _GRPC_ADDRESS,
            f"{_CAPABLE}/test_streaming_methods.py::test_tasks_subscribe_nonexistent": _JSON_ERROR,
        },
    ),
    Suite(
        branch="0.3.x",
        commit="eb1f804",
        marker="tests/mandatory",
        script=opens,
        address="--sut-url",
        runs=(
            ("tests/mandatory", _CAPABLE, "--test-scope=all", "--transports=jsonrpc"),
            ("tests/mandatory", _CAPABLE, "--test-scope=all", "--transports=rest"),
            ("tests/mandatory", _CAPABLE, "--test-scope=all", "--transports=grpc", "-p", "tck_grpc"),
        ),
        env={"TCK_STREAMING_TIMEOUT": "2.0"},
        excluded={
            "tests/mandatory/jsonrpc/test_a2a_error_codes_enhanced.py::"
            "test_push_notification_not_supported_error_32003_enhanced": (
                "reads the capabilities from the extended card, which the card does not declare, and so expects that "
                "there are no push notifications"
            ),
            "tests/mandatory/quality/test_error_validation_enhanced.py::test_invalid_method_error_validation": (
                "wraps its request in a request, so that `method` is an object: an invalid request (JSON-RPC 2.0 "
                "section 5.1)"
            ),
            f"{_SECURITY}::test_public_agent_card_access_control": (
                "looks for the card at the address of the agent; it is at /.well-known/agent-card.json (0.3 section 5.3)"
            ),
            f"{_SECURITY}::test_sensitive_information_protection": _LOOPBACK,
            "tests/mandatory/transport/test_multi_transport_equivalence.py::test_agent_card_access_equivalence": (
                "takes the authenticated extended card, which the card does not declare, for the card"
            ),
            f"{_CAPABLE}/test_agent_card_optional.py::test_authentication_structure": _FIRST_SCHEMES,
            f"{_CAPABLE}/test_agent_card_optional.py::test_agent_interfaces_structure": _GRPC_ADDRESS,
            f"{_CAPABLE}/test_push_notification_config_methods.py::test_get_push_notification_config": (
                "sets a configuration without an id and asks for one with the id `default`"
            ),
            f"{_CAPABLE}/test_streaming_methods.py::test_tasks_resubscribe_nonexistent": _JSON_ERROR,
            f"{_PROTOCOL}/test_a2a_v030_new_methods.py::TestTasksList::test_tasks_list_with_existing_tasks": _OWN_CALL,
            "tests/mandatory/jsonrpc/test_a2a_error_codes.py::test_push_notification_not_supported_error_32003": (
                "calls a method that its client for HTTP+JSON does not have; on JSON-RPC it is skipped"
            ),
        },
    ),
)


def suite_of(folder: Path) -> Suite:
    """The suite of a checkout. Raises ``SystemExit`` if it is none of them."""
    for suite in SUITES:
        if (folder / suite.marker).exists():
            return suite
    raise SystemExit(f"{folder} is no checkout of a branch that is known here")


def run(suite: Suite, folder: Path, python: Path, arguments: tuple[str, ...]) -> int:
    """One run of pytest in the kit's folder, against a fresh broker; its exit code."""
    scripts = Path(__file__).parent / "foreign"
    offline = {"PYTHONPATH": str(scripts / "offline")}
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(Agent(suite.script)) as url,
        served(Path(scratch), env=offline, grpc_port=0) as broker,
    ):
        broker.register("default_agent", card=card(url, streaming=True) | {"defaultInputModes": _MODES})
        env = {"NO_PROXY": "127.0.0.1,localhost", "PYTHONPATH": f"{scripts}{os.pathsep}{folder}", **suite.env}
        pytest = (str(python), "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider")
        left_out = [f"--deselect={test}" for test in suite.excluded]
        called = (*pytest, f"{suite.address}={broker.url}", *left_out, *arguments)
        return subprocess.run(called, cwd=folder, env=os.environ | env, check=False).returncode


def main() -> int:
    """Run the suite of the folder that the command names. Not 0 if anything failed."""
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    folder, more = Path(sys.argv[1]).resolve(), tuple(sys.argv[2:])
    suite = suite_of(folder)
    python = foreign.make("tck") / "bin/python"
    codes = [
        run(suite, folder, python, (*arguments, *(f"--deselect={test}" for test in suite.apart), *more))
        for arguments in suite.runs
    ]
    codes += [run(suite, folder, python, (*suite.apart, *suite.runs[0][1:], *more))] if suite.apart else []
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
