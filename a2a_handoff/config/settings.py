"""The settings: every number and name that an operator can change, with its unit, default and bounds.

Duty: what each setting means and may be, and what follows from them.
Rules: passwords are never shown. A setting that nothing reads is a fault.
Not here: where values come from (``config.sources``); the standard ``OTEL_*`` variables, which
OpenTelemetry reads itself.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from a2a_handoff.core.context import TOKEN_BUDGET
from a2a_handoff.core.policy import MAX_HOPS_CAP, Policy

_DAY_S = 86_400.0
_WEEK_S = 7 * _DAY_S

_HOST_AND_PORT = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}", re.ASCII)
_SECRET_BYTES_MIN = 32
_SECRETS = frozenset({"auth_secret"})
_PASSWORD = re.compile(r"(?<=:/)(/?[^:@/]*:).*(?=@)|((?:password|token)=)[^&\s]+")
_TOKENS = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
#: NATS takes a user without a password for a token.
_TOKEN = re.compile(r"(?:(?<=nats://)|(?<=tls://))[^:@/,]+(?=@)")


def _setting(
    default: Any,
    meaning: str,
    *,
    unit: str = "",
    allowed: str = "",
    ge: float | None = None,
    le: float | None = None,
) -> Any:
    """One setting. ``allowed`` is for the reader, where bounds and type do not say it."""
    extra: dict[str, Any] = {"unit": unit, "allowed": allowed}
    return Field(default, description=meaning, ge=ge, le=le, json_schema_extra=extra)


def _seconds(default: float, meaning: str, *, ge: float, le: float) -> Any:
    return _setting(default, meaning, unit="s", ge=ge, le=le)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on ``host``."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Settings(BaseModel):
    """The settings of one broker. Times are seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

    # --- who may call ----------------------------------------------------------------------------
    auth_issuer: str = _setting(
        "", "Who issues tokens: what stands in their `iss`. Must be set with auth_jwks.", allowed="text"
    )
    auth_audience: str = _setting(
        "",
        "Whom tokens are for: what stands in their `aud`. Must be set with auth_jwks.",
        allowed="text",
    )
    auth_secret: str = _setting(
        "",
        "Turns authentication on: tokens signed with this shared secret (HMAC) are taken.",
        allowed="at least 32 bytes",
    )
    auth_secret_file: Path | None = _setting(
        None, "File with the shared secret, instead of auth_secret.", allowed="a file"
    )
    auth_jwks: str = _setting(
        "",
        "Turns authentication on: tokens signed with one of these public keys are taken. An address is "
        "called under the rules for all outbound calls, and read again when a token names a new key.",
        allowed="an http or https URL or a file, of a JSON Web Key Set",
    )
    auth_leeway: float = _seconds(
        30, "How far the clocks of whoever issues tokens and the broker may differ.", ge=0, le=300
    )
    auth_agent_claim: str = _setting(
        "sub", "Claim of a token that says which agent it is of.", allowed="the name of a claim"
    )
    auth_tenant_claim: str = _setting(
        "tenant",
        "Claim of a token that says which tenant it is of. `none`: every token is of default_tenant.",
        allowed="the name of a claim, none",
    )
    auth_metrics: bool = _setting(
        True, "With authentication, /metrics needs a token with the scope handoff:metrics."
    )

    # --- where it listens ------------------------------------------------------------------------
    allow_unauthenticated: bool = _setting(
        False,
        "Listen on an address that other machines can reach although nobody has to say who they are. "
        "For trusted networks, or behind a proxy that authenticates.",
    )
    host: str = _setting(
        "127.0.0.1",
        "Address to listen on.",
        allowed="a host name or an IP address; "
        "other than loopback only with authentication or allow_unauthenticated",
    )
    port: int = _setting(8080, "Port to listen on; 0 takes a free one.", ge=0, le=65_535)
    grpc_port: int | None = _setting(
        None,
        "Port for gRPC, on the same host; 0 takes a free one. Needs the extra `grpc`. Unset: no gRPC.",
        ge=0,
        le=65_535,
    )
    grpc_address: str = _setting(
        "",
        "How others reach that port; stands in the broker's cards. Unset: the host of public_url, or host, "
        "and grpc_port.",
        allowed="host:port",
    )
    grpc_in_card: bool = _setting(
        True,
        "Name gRPC in the broker's cards. Off for clients that refuse a card whose addresses are not all of "
        "one origin.",
    )
    public_url: str = _setting(
        "",
        "How others reach the broker; stands in its cards, and its name is one to call the broker by. "
        "Unset: http://host:port.",
        allowed="an http or https URL",
    )
    grace: float = _seconds(
        10, "How long a stopping broker lets open requests and deliveries end.", ge=0, le=600
    )

    # --- what it keeps, and where ----------------------------------------------------------------
    store: str = _setting(
        "sqlite:///a2a-handoff.db",
        "Where handoffs are kept. A relative path starts at the working directory; PostgreSQL needs the "
        "extra `postgres`.",
        allowed="sqlite:///path, postgresql://user@host/database",
    )
    nats: str = _setting(
        "",
        "NATS, by which brokers on one store wake each other; servers of a cluster with commas between. "
        "Unset: none. Needs the extra `nats`.",
        allowed="nats://host:port, tls://host:port, with user:password@ or token@ before the host",
    )
    nats_creds: Path | None = _setting(
        None, "File of NATS credentials (a user's JWT and seed).", allowed="a file"
    )
    nats_ca: Path | None = _setting(
        None, "Certificates that NATS is trusted by, in place of those of the machine.", allowed="a file"
    )
    nats_cert: Path | None = _setting(
        None,
        "Certificate that the broker shows to NATS; its key too, unless nats_key is set.",
        allowed="a file",
    )
    nats_key: Path | None = _setting(None, "Key of nats_cert.", allowed="a file")
    nats_prefix: str = _setting(
        "handoff",
        "Names this deployment on NATS: all brokers on one store have the same, others another.",
        allowed="1 to 64 of a-z A-Z 0-9 _ -",
    )
    nats_stream: str = _setting(
        "",
        "Stream of NATS JetStream that events are told to, as nats_prefix.workspace.event. It is made if it "
        "is not there. Unset: none.",
        allowed="1 to 64 of a-z A-Z 0-9 _ -",
    )
    nats_stream_age: float = _seconds(
        _WEEK_S, "How long a stream that is made keeps an event.", ge=60, le=10 * 365 * _DAY_S
    )
    nats_stream_size: int = _setting(
        1_073_741_824,
        "How much a stream that is made keeps; the oldest events go first.",
        unit="bytes",
        ge=1_048_576,
        le=1_099_511_627_776,
    )
    nats_stream_replicas: int = _setting(
        1, "On how many servers of a cluster a stream that is made is kept.", ge=1, le=5
    )
    work_lease: float = _seconds(
        30,
        "How long a broker may stand still before another one on the same PostgreSQL takes over its work. "
        "One that is gone is noticed sooner.",
        ge=1,
        le=3_600,
    )
    cards: Path = _setting(
        Path("agent_cards"),
        "Folder of AgentCards to register at start; the name of a file is the agent id.",
        allowed="a folder",
    )
    rules: Path | None = _setting(
        None, "TOML file of routing rules. Unset: the rules that come with the broker.", allowed="a file"
    )
    default_tenant: str = _setting(
        "default",
        "Tenant of the agents in the card folder, and of callers who name none where nobody has to say who "
        "it is.",
        allowed="1 to 64 of a-z A-Z 0-9 . _ -",
    )

    # --- the cards of agents, and the broker's own -----------------------------------------------
    card_refresh: float = _seconds(
        300, "How often a card that has an address is read again, to see whether it changed.", ge=1, le=_DAY_S
    )
    card_signatures: Literal["ignore", "verify", "require"] = _setting(
        "verify",
        "What the signatures of a card must be. verify: those by known keys must be good, and what is found "
        "stands with the agent; require: cards without a good one are not taken. Cards of the card folder "
        "are the operator's own and not asked.",
    )
    card_keys: Path | None = _setting(
        None,
        "JSON Web Key Set with the public keys of those whose cards are trusted. Needs the extra `signing`.",
        allowed="a file",
    )
    card_key_urls: str = _setting(
        "",
        "Addresses of key sets that a card may name (`jku`); no other is called. Needs the extra `signing`.",
        allowed="https URLs with spaces between them; http on loopback",
    )
    card_signing_key: Path | None = _setting(
        None,
        "Private key to sign the broker's cards with: P-256, Ed25519 or RSA. Its public half is served at "
        "/.well-known/jwks.json. Needs the extra `signing`.",
        allowed="a file: a JSON Web Key, or PEM without a password",
    )
    card_signing_kid: str = _setting(
        "", "Name of that key. Unset: the one in the file, else its thumbprint.", allowed="text"
    )
    card_signing_jku: str = _setting(
        "",
        "Address of the key set to name in those signatures. Unset: none is named.",
        allowed="an http or https URL",
    )

    # --- the handoff -----------------------------------------------------------------------------
    ack_wait: float = _seconds(
        5, "How long a push agent may take to say that it is ready.", ge=0.05, le=3_600
    )
    retry_delay: float = _seconds(
        2, "Wait before the same agent is asked again; doubles with every retry.", ge=0, le=60
    )
    deliveries: int = _setting(
        2, "How often one agent is asked in one attempt, the first time included.", ge=1, le=10
    )
    agents: int = _setting(3, "How many agents are tried before a handoff goes back.", ge=1, le=20)
    pull_ack_wait: float = _seconds(
        30, "How long an offer stays in the inbox of a pull agent that is present.", ge=0.05, le=_DAY_S
    )
    wait_for_agent: float = _seconds(
        300,
        "How long a handoff waits for an agent if those that match are absent. A handoff may state its own.",
        ge=0,
        le=_WEEK_S,
    )
    deadline: float = _seconds(
        _DAY_S, "How long a handoff may take in all. A handoff may state its own.", ge=1, le=_WEEK_S
    )
    cancel_wait: float = _seconds(10, "How long the target may take to confirm a cancel.", ge=0, le=3_600)
    lost_after: float = _seconds(
        90, "How long a push agent that holds a task may be silent before it counts as lost.", ge=1, le=_DAY_S
    )
    reconcile_every: float = _seconds(
        30, "How often a push agent that holds a task is asked about it.", ge=0.05, le=3_600
    )
    lease: float = _seconds(
        1_800,
        "How long a pull agent that holds a task may be silent. A registration may state its own.",
        ge=1,
        le=_WEEK_S,
    )
    presence: float = _seconds(
        20, "How long a pull agent counts as present after it was heard from.", ge=1, le=3_600
    )
    broadcast_keep: float = _seconds(
        _DAY_S, "How long a broadcast is kept for agents that come later.", ge=1, le=_WEEK_S
    )
    retention: float = _seconds(
        30 * _DAY_S,
        "How long a chain is kept after its last change, with its contexts, results and request keys. "
        "0: for ever.",
        ge=0,
        le=3_650 * _DAY_S,
    )
    max_hops: int = _setting(
        MAX_HOPS_CAP, "How many handoffs in a row one chain may have.", ge=1, le=MAX_HOPS_CAP
    )
    token_budget: int = _setting(
        TOKEN_BUDGET, "Most tokens of summary and key facts together.", unit="tokens", ge=1, le=TOKEN_BUDGET
    )
    enforce_triggers: bool = _setting(
        False,
        "Refuse a handoff whose sender says that it can finish itself. Off: the answer carries a warning.",
    )

    # --- limits ----------------------------------------------------------------------------------
    max_body: int = _setting(10_485_760, "Largest request body.", unit="bytes", ge=1_024, le=1_073_741_824)
    max_values: int = _setting(
        200_000,
        "Most values in the JSON of a request, or in a message of gRPC: numbers, texts, objects and lists, "
        "those in each other too. Reading them costs by their number, and holds up everybody else.",
        ge=1_000,
        le=100_000_000,
    )
    max_head: int = _setting(
        65_536, "Largest head of a request: its line and its headers.", unit="bytes", ge=8_192, le=1_048_576
    )
    max_streams: int = _setting(
        20_000,
        "How many streams, sockets and waits may be open in all. Each costs a connection and some memory.",
        ge=1,
        le=1_000_000,
    )
    max_streams_each: int = _setting(
        1_000,
        "How many of them one principal of a tenant may have. Without authentication nobody is told apart, "
        "and only max_streams holds.",
        ge=1,
        le=1_000_000,
    )
    max_rate: int | None = _setting(
        None,
        "How many requests, or frames of a WebSocket, of one principal of a tenant are taken in the long "
        "run; each broker counts for itself. Without authentication all callers are one. Unset: any number.",
        unit="requests/s",
        ge=1,
        le=1_000_000,
    )
    max_burst: int = _setting(100, "How many of them may come at once.", unit="requests", ge=1, le=1_000_000)
    arrival: float = _seconds(
        60, "How long a request may take to arrive whole; then its connection is closed.", ge=0.05, le=3_600
    )
    send_timeout: float = _seconds(
        60,
        "How long a client may take nothing of an answer that waits for it, a stream too; then it is cut "
        "off. It loses nothing, and can go on where it was.",
        ge=0.05,
        le=3_600,
    )
    stream_idle: float = _seconds(
        300, "How long an agent's stream may be silent before it is cut and the agent asked.", ge=1, le=_DAY_S
    )
    keepalive: float = _seconds(15, "How often a silent stream to a client gets a comment.", ge=0.05, le=60)
    socket_ping: float = _seconds(
        8,
        "How often a WebSocket is asked for a sign of life. One that does not answer, or read, for as "
        "long is closed.",
        ge=0.05,
        le=9.5,
    )
    allow_private_addresses: bool | None = _setting(
        None,
        "Call agents and webhooks at loopback and private addresses; link-local ones are never called. "
        "Unset: only while the broker itself listens on loopback.",
    )

    # --- callbacks of agents ---------------------------------------------------------------------
    callbacks: Literal["off", "auto", "always"] = _setting(
        "auto",
        "Which agents whose cards say pushNotifications are asked to call the broker back about their tasks: "
        "auto is those that do not stream. Needs public_url.",
    )

    # --- webhooks of tasks -----------------------------------------------------------------------
    webhooks: int = _setting(10, "How many push notification configurations a task may have.", ge=1, le=100)
    webhook_timeout: float = _seconds(10, "How long a webhook may take to answer.", ge=0.05, le=60)
    webhook_retry_delay: float = _seconds(
        1,
        "Wait before a notification that was not taken is sent again; doubles with every failure, and half "
        "of it is left to chance.",
        ge=0.01,
        le=3_600,
    )
    webhook_retry_max: float = _seconds(300, "The longest of these waits.", ge=0.01, le=_DAY_S)
    webhook_give_up: float = _seconds(
        _DAY_S,
        "How long a webhook may take no notification before it is given up.",
        ge=0,
        le=_WEEK_S,
    )

    # --- what it tells ---------------------------------------------------------------------------
    trace_inbound: Literal["continue", "restart", "drop"] = _setting(
        "continue",
        "What becomes of a caller's trace: the chain continues it, starts its own and links to it, "
        "or takes no notice of it. Callers that are not trusted are never continued.",
    )
    trace_ratio: float = _setting(1.0, "Share of the chains that are traced.", ge=0, le=1)
    jaeger_url: str = _setting(
        "",
        "Address of the Jaeger UI, for links in answers. Unset: no links.",
        allowed="an http or https URL",
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting("info", "What is logged.")
    log_format: Literal["text", "json"] = _setting("text", "How a log line looks.")

    @field_validator(
        "callbacks", "card_signatures", "log_level", "log_format", "trace_inbound", mode="before"
    )
    @classmethod
    def _fold(cls, value: object) -> object:
        return value.strip().lower() if isinstance(value, str) else value

    @field_validator("auth_secret")
    @classmethod
    def _long_enough(cls, secret: str) -> str:
        if secret and len(secret.encode()) < _SECRET_BYTES_MIN:
            raise ValueError(f"is too short to be safe: at least {_SECRET_BYTES_MIN} random bytes")
        return secret

    @field_validator("auth_secret_file")
    @classmethod
    def _secret_in_file(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is None:
            return None
        if info.data.get("auth_secret"):
            raise ValueError("and auth_secret are both set: one secret is enough")
        try:
            secret = path.read_bytes().strip()
        except OSError as error:
            raise ValueError(f"cannot be read ({error.strerror})") from None
        if len(secret) < _SECRET_BYTES_MIN:
            raise ValueError(f"has a secret that is too short to be safe: {_SECRET_BYTES_MIN} random bytes")
        return path

    @field_validator("auth_jwks")
    @classmethod
    def _key_set(cls, place: str, info: ValidationInfo) -> str:
        if not place:
            return place
        if not place.startswith(("http://", "https://")) and not Path(place).is_file():
            raise ValueError("is neither an http or https URL nor a file")
        missing = [name for name in ("auth_issuer", "auth_audience") if not info.data.get(name)]
        if missing:
            raise ValueError(
                f"needs {' and '.join(missing)} too: else tokens that the provider issued for others "
                "would be good here"
            )
        return place

    @field_validator("host")
    @classmethod
    def _host(cls, host: str, info: ValidationInfo) -> str:
        bare = host.strip().strip("[]")
        if not bare or "/" in bare or (":" in bare and not _is_ip(bare)):
            raise ValueError("is not a host name or an IP address; the port is a setting of its own")
        closed = any(info.data.get(name) for name in ("auth_secret", "auth_secret_file", "auth_jwks"))
        if not is_loopback(bare) and not closed and not info.data.get("allow_unauthenticated", False):
            raise ValueError(
                "can be reached from other machines, and nobody has to say who they are: "
                "listen on 127.0.0.1, turn authentication on, or set allow_unauthenticated if the network is "
                "trusted"
            )
        return bare

    @field_validator("card_signing_jku", "public_url", "jaeger_url")
    @classmethod
    def _url(cls, url: str) -> str:
        if not url:
            return url
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("is not a plain http or https URL")
        return url.rstrip("/")

    @field_validator("store")
    @classmethod
    def _store(cls, store: str) -> str:
        if store.startswith(("postgresql://", "postgres://")):
            return store
        if not store.startswith("sqlite:///") or not store.removeprefix("sqlite:///"):
            raise ValueError("names no store")
        return store

    @field_validator("nats")
    @classmethod
    def _nats(cls, servers: str) -> str:
        for server in filter(None, map(str.strip, servers.split(","))):
            if not _is_nats(server):
                raise ValueError("names no NATS server")
        return servers

    @field_validator("nats_prefix")
    @classmethod
    def _prefix(cls, prefix: str) -> str:
        if not _TOKENS.fullmatch(prefix):
            raise ValueError("is not a prefix")
        return prefix

    @field_validator("nats_stream")
    @classmethod
    def _stream(cls, stream: str, info: ValidationInfo) -> str:
        if stream and not _TOKENS.fullmatch(stream):
            raise ValueError("is not the name of a stream")
        if stream and not info.data.get("nats"):
            raise ValueError("needs nats too: where the stream is")
        return stream

    @field_validator("grpc_address")
    @classmethod
    def _host_and_port(cls, address: str) -> str:
        if address and not _HOST_AND_PORT.fullmatch(address):
            raise ValueError("is not host:port")
        return address

    @field_validator("cards")
    @classmethod
    def _folder(cls, path: Path) -> Path:
        if not path.is_dir():
            raise ValueError(f"is not a folder ({path.absolute()})")
        return path

    @field_validator(
        "card_keys", "card_signing_key", "rules", "nats_creds", "nats_ca", "nats_cert", "nats_key"
    )
    @classmethod
    def _file(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError(f"is not a file ({path.absolute()})")
        return path

    @field_validator("card_key_urls")
    @classmethod
    def _key_urls(cls, urls: str) -> str:
        for url in urls.split():
            parts = urlsplit(url)
            safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
            if not safe or not parts.hostname:
                raise ValueError("has an address that is not https: anybody on the way could change the keys")
        return urls

    @field_validator("default_tenant")
    @classmethod
    def _tenant(cls, tenant: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", tenant):
            raise ValueError("is not a tenant's name")
        return tenant

    # --- what follows from them ------------------------------------------------------------------

    @cached_property
    def policy(self) -> Policy:
        """The numbers that a handoff requested now will live by."""
        return Policy(
            ack_wait_s=self.ack_wait,
            retry_delay_s=self.retry_delay,
            deliveries=self.deliveries,
            agents=self.agents,
            pull_ack_wait_s=self.pull_ack_wait,
            wait_for_agent_s=self.wait_for_agent,
            cancel_wait_s=self.cancel_wait,
            lease_s=self.lease,
            lost_after_s=self.lost_after,
            reconcile_every_s=self.reconcile_every,
            max_hops=self.max_hops,
        )

    @property
    def authenticates(self) -> bool:
        """Whether callers must say, and prove, who they are."""
        return bool(self.auth_secret or self.auth_secret_file or self.auth_jwks)

    def secret(self) -> bytes:
        """The secret that tokens are signed with; empty for none. Raises ``OSError``."""
        if self.auth_secret_file is not None:
            return self.auth_secret_file.read_bytes().strip()
        return self.auth_secret.encode()

    @property
    def nats_servers(self) -> tuple[str, ...]:
        """The servers of NATS; none if it is not used."""
        return tuple(filter(None, (server.strip().rstrip("/") for server in self.nats.split(","))))

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the broker."""
        return is_loopback(self.host)

    @property
    def private_addresses(self) -> bool:
        """Whether the broker may call agents at private addresses."""
        return self.loopback if self.allow_private_addresses is None else self.allow_private_addresses

    def url(self, port: int | None = None) -> str:
        """The broker's own address, without a slash at the end. ``port`` is the one really bound."""
        if self.public_url:
            return self.public_url
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port if port is None else port}"

    def grpc_shown(self, port: int) -> str:
        """The address of gRPC in cards, empty for none: host and port, as clients of gRPC want it."""
        if not self.grpc_in_card or self.grpc_address:
            return self.grpc_address if self.grpc_in_card else ""
        host = urlsplit(self.public_url).hostname if self.public_url else self.host
        return f"[{host}]:{port}" if host and ":" in host else f"{host}:{port}"

    def trace_url(self, trace_id: str) -> str:
        """Where the Jaeger UI shows a trace, empty if no Jaeger is set."""
        return f"{self.jaeger_url}/trace/{trace_id}" if self.jaeger_url else ""

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Name and value of each setting, passwords hidden."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            yield name, hide_password(value, name) if isinstance(value, str) else value


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_nats(server: str) -> bool:
    try:
        parts = urlsplit(server)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    plain = parts.path in ("", "/") and not parts.query and not parts.fragment
    return named and plain and parts.scheme in ("nats", "tls")


def hide_password(text: str, name: str = "") -> str:
    """``text``, the value of the setting ``name``, without the secret that it is or the password in it."""
    if name in _SECRETS and text:
        return "***"
    return _TOKEN.sub("***", _PASSWORD.sub(r"\1\2***", text))
