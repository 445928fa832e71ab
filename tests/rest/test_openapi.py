"""The OpenAPI document is that of the routes."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from a2a_handoff.transports.routes import OLD_ROOT
from tests.support.running import Broker, broker


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    folder: Path = tmp_path_factory.mktemp("openapi")
    with broker(folder) as running:
        yield running


@pytest.fixture(scope="module")
def document(b: Broker) -> Any:
    return b.http.get("/openapi.json").json()


def test_the_document_is_one_of_openapi_3_1(document: Any) -> None:
    # Imports here, for they take longer than all tests of this file, in every process of a run.
    from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

    assert document["openapi"].startswith("3.1.")
    assert [fault.message for fault in OPENAPI_31_VALIDATOR.iter_errors(document)] == []
    for name, schema in document["components"]["schemas"].items():
        assert jsonschema_rs.meta.is_valid(schema), name


def test_every_native_route_is_described_and_nothing_else(b: Broker, document: Any) -> None:
    served = {
        (method.lower(), route.path)
        for route in b.app._native
        for method in (route.methods or ())
        if method != "HEAD" and route.path != "/openapi.json"
    }
    described = {(method, path) for path, item in document["paths"].items() for method in item}
    assert served == described
    ids = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert len(ids) == len(set(ids))


def test_every_reference_of_the_document_leads_somewhere(document: Any) -> None:
    schemas = document["components"]["schemas"]
    named = set(re.findall(r"#/components/schemas/([A-Za-z_-]+)", str(document)))
    assert named <= schemas.keys()


def test_every_parameter_of_a_path_is_described(document: Any) -> None:
    for path, item in document["paths"].items():
        for operation in item.values():
            described = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert described == set(re.findall(r"{(\w+)}", path)), path


def test_what_has_no_body_shows_none(document: Any) -> None:
    watch = document["paths"]["/api/handoffs/watch"]["get"]["responses"]
    assert "content" not in watch["204"]
    assert len(watch["200"]["content"]["application/json"]["schema"]["anyOf"]) == 2
    assert set(watch["204"]["headers"]) == {"A2A-Handoff-Cursor", "A2A-Handoff-Resync"}
    assert "text/event-stream" in document["paths"]["/api/events"]["get"]["responses"]["200"]["content"]


def test_the_paths_of_the_older_clients_are_the_same_operations(document: Any) -> None:
    paths = document["paths"]
    for old, new in ((OLD_ROOT, "/api/handoffs"), (f"{OLD_ROOT}/watch", "/api/handoffs/watch")):
        method = "post" if old == OLD_ROOT else "get"
        assert paths[old][method]["parameters"] == paths[new][method]["parameters"]
