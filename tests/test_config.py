"""Settings: sources and their order, one clear line for each fault, the table in the docs, no dead setting."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_handoff.config import Settings, SettingsError, read, settings_table
from a2a_handoff.config.settings import hide_password
from a2a_handoff.config.sources import allowed, default, meaning, variable
from a2a_handoff.core.policy import Policy

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "a2a_handoff"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def faults(**environ: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        read(environ={f"A2A_HANDOFF_{name}": value for name, value in environ.items()})
    return caught.value.lines


# --- where values come from ----------------------------------------------------------------------


def test_without_any_source_the_defaults_hold() -> None:
    assert read(environ={"PATH": "/bin"}) == Settings()


def test_flags_go_over_the_environment_and_that_over_the_file_and_that_over_the_defaults() -> None:
    Path("a2a-handoff.toml").write_text("port = 1\nack_wait = 1.5\nretry_delay = 1\n")
    environ = {"A2A_HANDOFF_PORT": "2", "A2A_HANDOFF_ACK_WAIT": "2.5"}
    settings = read(environ=environ, flags={"port": "3"})
    assert (settings.port, settings.ack_wait, settings.retry_delay, settings.deliveries) == (3, 2.5, 1, 2)


def test_the_file_can_be_named_by_variable_and_by_flag_and_the_flag_wins() -> None:
    Path("a.toml").write_text("port = 1")
    Path("b.toml").write_text("port = 2")
    environ = {"A2A_HANDOFF_CONFIG": "a.toml"}
    assert read(environ=environ).port == 1
    assert read(environ=environ, config_file=Path("b.toml")).port == 2


def test_an_empty_variable_counts_as_unset() -> None:
    assert read(environ={"A2A_HANDOFF_PORT": "", "A2A_HANDOFF_STORE": " "}) == Settings()


def test_the_url_of_the_client_commands_is_no_setting_and_no_fault() -> None:
    assert read(environ={"A2A_HANDOFF_URL": "http://other:1"}) == Settings()


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_default_can_be_written_out_and_read_back(name: str, tmp_path: Path) -> None:
    (tmp_path / "agent_cards").mkdir()
    written = default(name)
    settings = read(environ={variable(name): written})
    assert getattr(settings, name) == Settings.model_fields[name].default


def test_the_policy_has_the_numbers_of_the_settings() -> None:
    assert Settings().policy == Policy()
    settings = Settings(ack_wait=1, deliveries=3, agents=4, max_hops=2, lost_after=50)
    policy = settings.policy
    assert (policy.ack_wait_s, policy.deliveries, policy.agents) == (1, 3, 4)
    assert (policy.max_hops, policy.lost_after_s) == (2, 50)


# --- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("PORT", "eighty", ["'eighty' is not a whole number", "0 to 65535"]),
        ("PORT", "70000", ["'70000' is too large", "0 to 65535"]),
        ("PORT", "80.5", ["'80.5' is not a whole number"]),
        ("ACK_WAIT", "0", ["'0' is too small", "0.05 to 3600"]),
        ("ACK_WAIT", "5s", ["'5s' is not a number"]),
        ("ACK_WAIT", "nan", ["is not a number"]),
        ("ACK_WAIT", "inf", ["is not a number"]),
        ("MAX_HOPS", "6", ["too large", "1 to 5"]),
        ("DEADLINE", "604801", ["too large", "1 to 604800"]),
        ("TOKEN_BUDGET", "2001", ["too large", "1 to 2000"]),
        ("LOG_LEVEL", "loud", ["'loud' is not one of the choices", "debug, info, warning, error"]),
        ("TRACE_INBOUND", "yes", ["continue, restart, drop"]),
        ("ENFORCE_TRIGGERS", "perhaps", ["is neither true nor false"]),
        ("HOST", "0.0.0.0", ["nobody has to say who they are", "allow_unauthenticated"]),
        ("HOST", "127.0.0.1:8080", ["is not a host name", "port is a setting of its own"]),
        ("HOST", "http://localhost", ["is not a host name"]),
        ("PUBLIC_URL", "broker.example", ["is not a plain http or https URL"]),
        ("JAEGER_URL", "ftp://jaeger", ["is not a plain http or https URL"]),
        ("STORE", "mysql://x/y", ["names no store", "sqlite:///path"]),
        ("STORE", "sqlite:///", ["names no store"]),
        ("STORE", "postgresql:db/x", ["names no store", "postgresql://user@host/database"]),
        ("NATS", "127.0.0.1:4222", ["names no NATS server", "nats://host:port"]),
        ("NATS", "nats://one,http://two", ["names no NATS server"]),
        ("NATS", "nats://host/path", ["names no NATS server"]),
        ("NATS_PREFIX", "a.b", ["is not a prefix"]),
        ("NATS_STREAM", "events", ["needs nats too"]),
        ("NATS_STREAM", "a.b", ["is not the name of a stream"]),
        ("NATS_CREDS", "nowhere.creds", ["is not a file"]),
        ("GRPC_ADDRESS", "http://x:1", ["is not host:port"]),
        ("CARDS", "nowhere", ["is not a folder", "/nowhere)"]),
        ("RULES", "rules.toml", ["is not a file", "/rules.toml)"]),
        ("DEFAULT_TENANT", "a b", ["is not a tenant's name"]),
    ],
)
def test_a_wrong_value_gives_one_line_with_its_name_its_place_and_what_is_allowed(
    name: str, value: str, parts: list[str]
) -> None:
    (line,) = faults(**{name: value})
    assert line.startswith(f"A2A_HANDOFF_{name} in the environment: ")
    assert "\n" not in line
    for part in parts:
        assert part in line


def test_all_faults_are_told_at_once() -> None:
    lines = faults(PORT="x", MAXHOPS="3", LOG_LEVEL="loud")
    assert [line.split(":")[0] for line in lines] == [
        "the environment",
        "A2A_HANDOFF_PORT in the environment",
        "A2A_HANDOFF_LOG_LEVEL in the environment",
    ]


def test_c097_an_unknown_variable_is_refused_with_the_near_miss_named() -> None:
    assert faults(MAXHOPS="3") == (
        "the environment: there is no setting A2A_HANDOFF_MAXHOPS; did you mean A2A_HANDOFF_MAX_HOPS?",
    )
    with pytest.raises(SettingsError, match="no setting a2a_handoff_port; did you mean A2A_HANDOFF_PORT"):
        read(environ={"a2a_handoff_port": "1"})
    assert faults(ZZZ="1") == ("the environment: there is no setting A2A_HANDOFF_ZZZ",)


def test_an_unknown_key_of_the_file_is_refused_with_the_near_miss_named() -> None:
    Path("a2a-handoff.toml").write_text("ackwait = 3\n[auth]\nx = 1\n")
    with pytest.raises(SettingsError) as caught:
        read(environ={})
    assert caught.value.lines == (
        "a2a-handoff.toml: there is no setting 'ackwait'; did you mean ack_wait?",
        "a2a-handoff.toml: there is no setting 'auth'",
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"port = ", "not TOML: "),
        (b"\xff\xfe", "not UTF-8"),
        (b"port = true", "port in a2a-handoff.toml: true is no number"),
        (b"port = '8o'", "port in a2a-handoff.toml: '8o' is not a whole number"),
        (b"port = [1]", "is not a whole number"),
        (b"store = 5", "store in a2a-handoff.toml: 5 cannot be used (allowed: sqlite:///path, postgresql://"),
        (b"ack_wait = inf", "is not a number"),
    ],
)
def test_a_wrong_file_gives_one_line_that_names_it(text: bytes, part: str) -> None:
    Path("a2a-handoff.toml").write_bytes(text)
    with pytest.raises(SettingsError) as caught:
        read(environ={})
    (line,) = caught.value.lines
    assert "a2a-handoff.toml" in line
    assert part in line


def test_a_named_file_that_is_not_there_is_refused_with_its_whole_path(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        read(environ={"A2A_HANDOFF_CONFIG": "gone.toml"})
    assert str(caught.value) == f"{tmp_path}/gone.toml: cannot be read: No such file or directory"


def test_passwords_are_never_shown() -> None:
    (line,) = faults(STORE="mysql://user:se/cr@et@db/x?password=alsosecret")
    for secret in ("se/cr", "et@", "alsosecret"):
        assert secret not in line
    assert "mysql://user:***@db/x" in line


@given(st.text(alphabet="abc:/@?#.&=", min_size=1))
def test_no_part_of_a_password_survives_whatever_stands_in_it(password: str) -> None:
    hidden = hide_password(f"nats://user:{password}@host:4222")
    assert hidden == "nats://user:***@host:4222"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("postgres:/user:s3cret@host/db", "postgres:/user:***@host/db"),
        ("nats://host:4222?token=s3cret", "nats://host:4222?token=***"),
        ("postgresql://host/db?password=s3cret&a=b", "postgresql://host/db?password=***&a=b"),
    ],
)
def test_a_password_is_hidden_in_what_is_written_wrong_too(said: str, shown: str) -> None:
    assert hide_password(said) == shown


def test_a_token_for_nats_is_a_password_too() -> None:
    assert hide_password("nats://s3cret@one:4222,tls://s3cret@two") == "nats://***@one:4222,tls://***@two"
    assert "s3cret" not in repr(Settings(nats="nats://s3cret@one:4222"))


def test_a_handmade_settings_object_is_checked_as_well() -> None:
    with pytest.raises(ValueError, match="can be reached from other machines"):
        Settings(host="0.0.0.0")


# --- what follows from them ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("127.8.8.8", "http://127.8.8.8:8080"),
        ("localhost", "http://localhost:8080"),
        ("::1", "http://[::1]:8080"),
        ("[::1]", "http://[::1]:8080"),
    ],
)
def test_loopback_needs_no_authentication(host: str, url: str) -> None:
    settings = Settings(host=host)
    assert settings.loopback
    assert settings.url() == url


def test_another_address_needs_the_explicit_word() -> None:
    settings = read(environ={"A2A_HANDOFF_HOST": "0.0.0.0", "A2A_HANDOFF_ALLOW_UNAUTHENTICATED": "yes"})
    assert settings.host == "0.0.0.0"
    assert not settings.loopback


def test_private_addresses_may_be_called_on_loopback_only_unless_said_otherwise() -> None:
    assert Settings().private_addresses
    assert not Settings(allow_private_addresses=False).private_addresses
    assert not Settings(host="192.0.2.1", allow_unauthenticated=True).private_addresses
    assert Settings(
        host="192.0.2.1", allow_unauthenticated=True, allow_private_addresses=True
    ).private_addresses


def test_urls_are_built_without_a_double_slash() -> None:
    settings = Settings(public_url="https://broker.example/", jaeger_url="http://localhost:16686/")
    assert settings.url(9) == "https://broker.example"
    assert settings.trace_url("ab") == "http://localhost:16686/trace/ab"
    assert Settings().trace_url("ab") == ""
    assert Settings(port=0).url(4711) == "http://127.0.0.1:4711"


# --- tables and use ------------------------------------------------------------------------------


def test_every_setting_says_what_it_means_and_what_is_allowed() -> None:
    for name in Settings.model_fields:
        assert meaning(name).endswith("."), name
        assert allowed(name), name


def test_the_table_in_the_docs_is_the_one_that_the_code_writes() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text()
    assert f"-->\n{settings_table()}<!-- end of settings -->" in page


def test_every_setting_is_read_by_something() -> None:
    """Directly, or by a method of ``Settings`` that something calls."""
    reads_of_methods = _reads_of_methods()
    used = _names_read_off_settings()
    todo = list(used)
    while todo:
        new = reads_of_methods.get(todo.pop(), set()) - used
        used |= new
        todo += new
    by_the_check_of_host = {"allow_unauthenticated"}
    unread = set(Settings.model_fields) - used - by_the_check_of_host
    assert sorted(unread) == []


def _names_read_off_settings() -> set[str]:
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name == "config":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and _is_settings(node.value):
                found.add(node.attr)
    return found


def _is_settings(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.lstrip("_") == "settings"


def _reads_of_methods() -> dict[str, set[str]]:
    tree = ast.parse((PACKAGE / "config/settings.py").read_text())
    (cls,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings")
    return {
        method.name: {
            node.attr
            for node in ast.walk(method)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        }
        for method in cls.body
        if isinstance(method, ast.FunctionDef)
    }
