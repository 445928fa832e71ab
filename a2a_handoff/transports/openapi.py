"""The OpenAPI 3.1 document of the native REST surface, made from its route table.

Source: OpenAPI 3.1.0; schemas are those of the pydantic models.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from a2a_handoff import __version__
from a2a_handoff.core.text import NAME_CHARS_MAX
from a2a_handoff.wire.native import Problem

_SCHEMES = {
    "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
}
_REF = "#/components/schemas/{model}"
_EMPTY = (204, 304)
_SUCCESSES = {204: "Done; there is nothing to show.", 304: "It is as the caller knows it."}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operation.

    ``least`` and ``most`` bound a number; ``words`` are those of a list. ``repeated``: it may come again.
    """

    name: str
    meaning: str
    where: Literal["query", "path", "header"] = "query"
    kind: Literal["string", "integer", "number"] = "string"
    required: bool = False
    least: int = 0
    most: int | None = None
    words: tuple[str, ...] = ()
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the route table. ``status`` are the successes, ``errors`` those beside 400, 413 and 422.

    ``answer`` of several models is one of them. ``headers`` are those of an answer, with their meaning.
    """

    method: str
    path: str
    summary: str
    tag: str = "handoffs"
    parameters: tuple[Parameter, ...] = ()
    body: type[BaseModel] | None = None
    body_required: bool = True
    answer: type[BaseModel] | tuple[type[BaseModel], ...] | None = None
    media_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    status: tuple[int, ...] = (200,)
    errors: tuple[int, ...] = ()

    @property
    def answers(self) -> tuple[type[BaseModel], ...]:
        """The models of which an answer is one."""
        if self.answer is None:
            return ()
        return self.answer if isinstance(self.answer, tuple) else (self.answer,)


def document(operations: Sequence[Operation], *, secured: bool = False) -> bytes:
    """The document as JSON. ``secured``: callers need a token."""
    bodies = {op.body for op in operations if op.body}
    answers = {model for op in operations for model in op.answers} | {Problem}
    refs, schema = models_json_schema(
        [
            *((model, "validation") for model in sorted(bodies, key=_name)),
            *((model, "serialization") for model in sorted(answers, key=_name)),
        ],
        ref_template=_REF,
    )
    paths: dict[str, dict[str, Any]] = {}
    for op in operations:
        told = replace(op, errors=tuple(sorted({*op.errors, 401, 403}))) if secured else op
        paths.setdefault(op.path, {})[op.method.lower()] = _operation(told, refs)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "a2a-handoff",
                "version": __version__,
                "summary": "Hands tasks from one A2A agent to another.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "paths": paths,
            "components": {"schemas": schema.get("$defs", {})} | (_SCHEMES if secured else {}),
            **({"security": [{"bearer": []}]} if secured else {}),
        }
    )


def _name(model: type[BaseModel]) -> str:
    return model.__name__


def _operation(op: Operation, refs: Any) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{op.method} {op.path}").strip("_").lower(),
        "summary": op.summary,
        "tags": [op.tag],
        "parameters": [_parameter(parameter) for parameter in op.parameters],
        "responses": _responses(op, refs),
    }
    if op.body is not None:
        described["requestBody"] = {
            "required": op.body_required,
            "content": {"application/json": {"schema": refs[op.body, "validation"]}},
        }
    return described


def _parameter(parameter: Parameter) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": parameter.name,
        "in": parameter.where,
        "description": parameter.meaning,
        "required": parameter.required or parameter.where == "path",
    }
    schema: dict[str, Any] = {"type": parameter.kind}
    if parameter.words:
        described |= {"style": "form", "explode": False}
        schema = {"type": "array", "items": {"type": "string", "enum": parameter.words}}
    elif parameter.repeated:
        described |= {"style": "form", "explode": True}
        schema = {"type": "array", "items": {"type": "string", "maxLength": NAME_CHARS_MAX}}
    elif parameter.kind != "string":
        schema["minimum"] = parameter.least
        if parameter.most is not None:
            schema["maximum"] = parameter.most
    elif parameter.required:
        schema["minLength"] = 1
    return described | {"schema": schema}


def _responses(op: Operation, refs: Any) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in op.status:
        answer: dict[str, Any] = {"description": _SUCCESSES.get(status, "Done.")}
        if op.headers:
            answer["headers"] = {
                name: {"description": meaning, "schema": {"type": "string"}} for name, meaning in op.headers
            }
        if status not in _EMPTY and (content := _content(op, refs)):
            answer["content"] = {op.media_type: content}
        responses[str(status)] = answer
    problem = {
        "description": "Refused; nothing was changed.",
        "content": {"application/problem+json": {"schema": refs[Problem, "serialization"]}},
    }
    for status in (400, *op.errors, *((413, 422) if op.body else ())):
        responses[str(status)] = problem
    return responses


def _content(op: Operation, refs: Any) -> dict[str, Any]:
    if not op.answers:
        return {"schema": {"type": "string" if op.media_type.startswith("text/") else "object"}}
    schemas = [refs[model, "serialization"] for model in op.answers]
    return {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
