"""JSON values that pydantic leaves alone, and reading and writing bodies that have them.

Rules: a raw value keeps its bytes, so that no number loses a digit on its way through the broker.
Not here: bounds on size and depth, which hold before a body comes here.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import Raw
from pydantic import AliasChoices, BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from a2a_handoff.core.errors import Code, HandoffError, Violation
from a2a_handoff.wire.fields import decode_any

_object = msgspec.json.Decoder(dict[str, Raw])

#: The most of a list or an object that is read, and not kept as it came.
_MEMBER_BYTES_MAX = 65_536
_TOO_LARGE = f"must be at most {_MEMBER_BYTES_MAX} bytes of JSON"


class _RawSchema:
    """Makes pydantic keep a JSON value as the bytes that came; ``kind`` is its JSON Schema type.

    ``checked``: other types are refused here, and not by who reads the value. ``schema`` says more of the
    value than its type, to whoever reads the description.
    """

    def __init__(self, kind: str = "", *, checked: bool = True, schema: dict[str, Any] | None = None) -> None:
        self.kind = kind
        self._schema: dict[str, Any] = ({"type": kind} if kind else {}) | (schema or {})
        self._wanted = kind if checked else ""

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._keep,
            serialization=core_schema.plain_serializer_function_ser_schema(decode_any, when_used="json"),
        )

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return dict(self._schema)

    def _keep(self, value: Any) -> Raw:
        kept = value if isinstance(value, Raw) else raw(value)
        first = bytes(kept)[:1]
        if (self._wanted == "object" and first != b"{") or (self._wanted == "array" and first != b"["):
            raise ValueError(f"must be {'an object' if self.kind == 'object' else 'an array'}")
        return kept


RawJson = Annotated[Raw, _RawSchema()]
RawObject = Annotated[Raw, _RawSchema("object")]
RawArray = Annotated[Raw, _RawSchema("array")]

#: Members of a handoff context: whoever reads that tells all that is wrong with it at once.
ContextObject = Annotated[Raw, _RawSchema("object", checked=False)]
ContextArray = Annotated[Raw, _RawSchema("array", checked=False)]


_M = TypeVar("_M", bound=BaseModel)


def decode(model: type[_M], body: bytes) -> _M:
    """Read a request body; an empty one counts as ``{}``.

    What a model does not know is not read, only its name. Raises ``HandoffError``: ``parse_error`` if it
    is not a JSON object, ``invalid_params`` with one violation for each wrong field.
    """
    names = _names(model)
    try:
        fields = _object.decode(body or b"{}")
        large = [name for name, value in fields.items() if names.get(name) and _is_large(value)]
        if large:
            raise HandoffError(Code.INVALID_PARAMS, violations=tuple(Violation(n, _TOO_LARGE) for n in large))
        values = {
            name: decode_any(value) if names.get(name) else value
            for name, value in fields.items()
            if bytes(value) != b"null"
        }
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise HandoffError(Code.PARSE_ERROR) from None
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise HandoffError(Code.INVALID_PARAMS, violations=violations_of(error)) from None


def encode(model: BaseModel) -> bytes:
    """Write an answer; raw values stay byte for byte."""
    return msgspec.json.encode(model.model_dump())


def violations_of(error: ValidationError) -> tuple[Violation, ...]:
    """What pydantic found, in our words: the path and what is wrong, never the value."""
    found: list[Violation] = []
    for each in error.errors(include_url=False, include_input=False):
        path = ".".join(str(step) for step in each["loc"])
        own_words = each.get("ctx", {}).get("error")
        found.append(Violation(path, str(own_words or _plainly(each["msg"]))))
    return tuple(found)


def _plainly(said: str) -> str:
    if said == "Field required":
        return "is missing"
    return said.replace("Input should", "must").replace("String should", "must").replace("valid ", "")


def raw(value: Any) -> Raw:
    """``value`` as a raw JSON value."""
    return Raw(msgspec.json.encode(value))


@cache
def _names(model: type[BaseModel]) -> dict[str, bool]:
    """The names of a model's fields, aliases included, and whether their values are read here."""
    names: dict[str, bool] = {}
    for name, field in model.model_fields.items():
        names[name] = not _is_raw(field)
        if isinstance(field.validation_alias, AliasChoices):
            names |= {str(choice): names[name] for choice in field.validation_alias.choices}
    return names


def _is_raw(field: FieldInfo) -> bool:
    """``RawJson`` or ``RawJson | None``; a list of raw values is read element by element."""
    if field.annotation is Raw:
        return True
    return any(get_args(option)[:1] == (Raw,) for option in get_args(field.annotation))


def _is_large(value: Raw) -> bool:
    """Whether it is a list or an object of more than anybody means: to read it would hold up everybody."""
    return len(memoryview(value)) > _MEMBER_BYTES_MAX and memoryview(value)[0] in b"[{"
