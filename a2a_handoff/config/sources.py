"""Where settings come from, how they are named there, and the table of them.

Duty: read flags, environment and ``a2a-handoff.toml``, in that order of precedence. One name serves
all three: ``ack_wait`` in the file, ``--ack-wait`` as a flag of ``serve``, ``A2A_HANDOFF_ACK_WAIT``
in the environment.
Rules: a wrong value, an unknown name and a file that cannot be read are errors that say where they
came from and what is allowed; all of them are told at once.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from pydantic import ValidationError

from a2a_handoff.config.settings import Settings, hide_password

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

PREFIX = "A2A_HANDOFF_"
CONFIG_VARIABLE = "A2A_HANDOFF_CONFIG"
CONFIG_FILE = Path("a2a-handoff.toml")

#: Read from the environment by the command line itself; they are no settings of the broker.
CLIENT_VARIABLES = frozenset({CONFIG_VARIABLE, "A2A_HANDOFF_URL", "A2A_HANDOFF_TOKEN"})


class SettingsError(Exception):
    """The settings cannot be used. ``lines`` has one line for each fault, fit to be shown."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        self.lines = lines
        super().__init__("\n".join(lines))


class ConfigurationError(Exception):
    """A setting that is well-formed and cannot work."""


def read(
    *,
    environ: Mapping[str, str],
    flags: Mapping[str, str | bool] | None = None,
    config_file: Path | None = None,
) -> Settings:
    """Read the settings: ``flags`` go over ``environ``, which goes over the file, over the defaults.

    ``flags`` are by the settings' names. The file is ``config_file``, else the one that
    ``A2A_HANDOFF_CONFIG`` names, else ``./a2a-handoff.toml`` if there is one. An empty variable
    counts as unset. Raises ``SettingsError`` with every fault.
    """
    faults: list[str] = []
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}

    path = config_file or (Path(named) if (named := environ.get(CONFIG_VARIABLE, "")) else None)
    if path is None and CONFIG_FILE.is_file():
        path = CONFIG_FILE
    if path is not None:
        for key, value in _read_file(path).items():
            if key in Settings.model_fields:
                values[key], origin[key] = value, f"{key} in {path}"
            else:
                faults.append(f"{path}: there is no setting {key!r}{suggest(key)}")

    variables = {variable(name): name for name in Settings.model_fields}
    for key in sorted(environ):
        if not key.upper().startswith(PREFIX) or key in CLIENT_VARIABLES:
            continue
        if key not in variables:
            near = suggest(key[len(PREFIX) :].lower(), variable)
            faults.append(f"the environment: there is no setting {key}{near}")
        elif environ[key].strip():
            name = variables[key]
            values[name], origin[name] = environ[key].strip(), f"{key} in the environment"

    for name, value in (flags or {}).items():
        values[name], origin[name] = value, f"the flag {flag(name)}"

    return _validate(values, origin, faults)


def _validate(values: dict[str, Any], origin: Mapping[str, str], faults: list[str]) -> Settings:
    for name, value in list(values.items()):
        numeric = not {bool, str, Path} & set(_types(Settings.model_fields[name]))
        if isinstance(value, bool) and numeric:
            faults.append(_fault(name, origin, value, "is no number"))
            del values[name]
    try:
        settings = Settings(**values)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            name = str(each["loc"][0])
            faults.append(_fault(name, origin, values[name], _wrong(each["type"], each.get("ctx", {}))))
        raise SettingsError(tuple(faults)) from None
    if faults:
        raise SettingsError(tuple(faults))
    return settings


def _fault(name: str, origin: Mapping[str, str], value: object, wrong: str) -> str:
    shown = hide_password(value, name) if isinstance(value, str) else value
    limits = allowed(name)
    text = repr(shown).lower() if isinstance(shown, bool) else repr(shown)
    return f"{origin[name]}: {text} {wrong}" + (f" (allowed: {limits})" if limits else "")


def _wrong(kind: str, context: Mapping[str, Any]) -> str:
    match kind:
        case "value_error":
            return str(context["error"])
        case "int_parsing" | "int_type" | "int_from_float" | "int_parsing_size":
            return "is not a whole number"
        case "float_parsing" | "float_type" | "finite_number":
            return "is not a number"
        case "bool_parsing" | "bool_type":
            return "is neither true nor false"
        case "greater_than_equal":
            return "is too small"
        case "less_than_equal":
            return "is too large"
        case "literal_error":
            return "is not one of the choices"
        case _:
            return "cannot be used"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError((f"{path}: not TOML: {error}",)) from None
    except UnicodeDecodeError:
        raise SettingsError((f"{path}: not UTF-8",)) from None
    except OSError as error:
        raise SettingsError((f"{path.absolute()}: cannot be read: {error.strerror}",)) from None


def suggest(key: str, spell: Callable[[str], str] = str) -> str:
    """A near miss of an unknown setting, as the end of a sentence; empty if nothing is near."""
    near = difflib.get_close_matches(key, list(Settings.model_fields), n=1, cutoff=0.7)
    return f"; did you mean {spell(near[0])}?" if near else ""


# --- names and tables ----------------------------------------------------------------------------


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def flag(name: str) -> str:
    """The flag of ``serve`` of a setting."""
    return "--" + name.replace("_", "-")


def allowed(name: str) -> str:
    """What a setting may be, in words."""
    field = Settings.model_fields[name]
    if said := _extra(field)["allowed"]:
        return str(said)
    types = _types(field)
    if bool in types:
        return "true, false"
    if choices := [str(choice) for kind in types for choice in get_args(kind)]:
        return ", ".join(choices)
    low = next((mark.ge for mark in field.metadata if hasattr(mark, "ge")), None)
    high = next((mark.le for mark in field.metadata if hasattr(mark, "le")), None)
    if low is None or high is None:
        return ""
    return f"{_number(low)} to {_number(high)}"


def default(name: str) -> str:
    """A setting's default as one would write it; empty for *unset*."""
    value = Settings.model_fields[name].default
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return _number(value) if isinstance(value, int | float) else str(value)


def unit(name: str) -> str:
    """A setting's unit: ``s``, ``bytes``, ``tokens``, or empty."""
    return str(_extra(Settings.model_fields[name])["unit"])


def meaning(name: str) -> str:
    """What a setting does, in a sentence or two."""
    return Settings.model_fields[name].description or ""


def settings_table() -> str:
    """The settings as a Markdown table, as ``docs/reference/settings.md`` shows it."""
    lines = [
        "| Variable | Default | Unit | Allowed | Meaning |",
        "|---|---|---|---|---|",
    ]
    for name in Settings.model_fields:
        usual = f"`{default(name)}`" if default(name) else "unset"
        lines.append(f"| `{variable(name)}` | {usual} | {unit(name)} | {allowed(name)} | {meaning(name)} |")
    return "\n".join(lines) + "\n"


def _extra(field: FieldInfo) -> dict[str, Any]:
    extra = field.json_schema_extra
    return cast("dict[str, Any]", extra) if isinstance(extra, dict) else {}


def _types(field: FieldInfo) -> tuple[Any, ...]:
    annotation: Any = field.annotation
    if get_args(annotation) and not isinstance(get_args(annotation)[0], str):
        return get_args(annotation)
    return (annotation,)


def _number(value: Any) -> str:
    return f"{value:.10g}"
