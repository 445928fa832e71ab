"""Every command and its options.

Rules: a command imports what it needs when it runs, so that ``--help`` does not pay for all of them.
Not here: what the commands do.
"""

# ruff: noqa: PLC0415 - see the rules above

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from a2a_handoff import __version__
from a2a_handoff.cli import database
from a2a_handoff.cli.outcome import INTERRUPTED, USAGE, Failed
from a2a_handoff.cli.place import Place

PROGRAM = "a2a-handoff"
DEFAULT_URL = "http://127.0.0.1:8080"

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A broker that hands tasks from one A2A agent to another, without losing any.",
)
agents_app = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, help="The agents that the broker knows; checking cards."
)
handoffs_app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="Handoffs and their events.")
context_app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="Handoff contexts.")
app.add_typer(agents_app, name="agents")
app.add_typer(handoffs_app, name="handoffs")
app.add_typer(context_app, name="context")
app.add_typer(database.app, name="db")

Url = Annotated[
    str, typer.Option("--url", metavar="URL", envvar="A2A_HANDOFF_URL", help="The running broker.")
]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="A2A_HANDOFF_TOKEN",
        show_default=False,
        help="Who you are, if the broker asks: a token, or @FILE that has one.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="The broker's answer as JSON, for programs.")]

ContextFile = Annotated[
    str,
    typer.Option("--context", metavar="FILE", help="JSON file with a handoff context; - for standard input."),
]
Source = Annotated[str, typer.Option(metavar="AGENT", help="Who hands off. Default: cli.")]
Target = Annotated[
    str, typer.Option(metavar="AGENT", help="A certain agent; without it, capabilities decide.")
]
Capability = Annotated[
    list[str],
    typer.Option(
        default_factory=list,
        show_default=False,
        metavar="NAME",
        help="What the agent must be able to do; repeat it.",
    ),
]
Skill = Annotated[str, typer.Option(metavar="ID", help="A skill that the agent must have.")]
Domain = Annotated[str, typer.Option(metavar="NAME", help="A domain that the agent must know.")]
Tag = Annotated[
    list[str],
    typer.Option(
        default_factory=list,
        show_default=False,
        metavar="NAME",
        help="A tag that one of its skills must have; repeat it.",
    ),
]
Platform = Annotated[str, typer.Option(metavar="NAME", help="Where the agent must run.")]
Summary = Annotated[str, typer.Option(metavar="TEXT", help="What was said so far. Default: the task.")]
Intent = Annotated[str, typer.Option(metavar="TEXT", help="What the user wants. Default: the task.")]
Fact = Annotated[
    list[str],
    typer.Option(
        default_factory=list,
        show_default=False,
        metavar="NAME=VALUE",
        help="A key fact; JSON or text; repeat it.",
    ),
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and give its exit code; ``argv`` without the program's name."""
    try:
        app(args=list(argv) if argv is not None else None, prog_name=PROGRAM)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else USAGE if end.code else 0
    except Failed as failed:
        for line in failed.lines:
            sys.stderr.write(f"{line}\n" if line.startswith(" ") else f"{PROGRAM}: {line}\n")
        return failed.code
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A broker that hands tasks from one A2A agent to another, without losing any."""


@app.command()
def doctor(
    *,
    url: Url = "",
    token: Token = "",
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings file, as for serve.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The findings as JSON, for programs.")] = False,
) -> None:
    """Is everything there that the broker needs? Looks at settings, store, cards, NATS, collector, agents."""
    import asyncio
    import os

    from a2a_handoff.cli import doctor as looking

    found = asyncio.run(looking.examine(Place(url, token), os.environ, config))
    typer.echo(looking.shown(found, as_json=json))
    if any(one.verdict == "failed" for one in found):
        raise typer.Exit(1)


# --- the broker ----------------------------------------------------------------------------------


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
    short_help="Run the broker.",
)
def serve(
    context: typer.Context,
    *,
    config: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    help_: Annotated[bool, typer.Option("--help", "-h")] = False,
) -> None:
    """Run the broker. Every setting is a flag; ``serve --help`` lists them."""
    from a2a_handoff.cli import serving

    if help_:
        typer.echo(serving.help_text(min(shutil.get_terminal_size().columns, 100)))
        return
    raise typer.Exit(serving.run(context.args, config))


@app.command()
def drain(
    *,
    notice: Annotated[
        float,
        typer.Option(
            "--notice", metavar="SECONDS", min=0, max=300, help="How long it still takes tasks, not ready."
        ),
    ] = 5.0,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait in all.")
    ] = 30.0,
    undo: Annotated[bool, typer.Option("--undo", help="Put the broker back into service.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> None:
    """Take one broker out of service, and wait until nothing is under way there.

    It is not ready at once, takes tasks for the time of the notice, and then lets go who waits.

    Exit code 0: nothing is under way. 1: something still is when the time is over. 3: no broker.
    """
    from a2a_handoff.cli import draining

    place = Place(url, token)
    if undo:
        typer.echo(draining.undo(place))
    else:
        typer.echo(draining.drain(place, notice_s=notice, timeout_s=timeout))


@app.command("token")
def mint(
    *,
    sub: Annotated[str, typer.Option("--sub", metavar="AGENT", help="Whose token it is.")],
    tenant: Annotated[
        str, typer.Option(metavar="NAME", help="Of which tenant. Default: default_tenant.")
    ] = "",
    scope: Annotated[
        str,
        typer.Option(metavar="SCOPES", help="With spaces between. Without: all but admin and metrics."),
    ] = "",
    ttl: Annotated[
        float, typer.Option("--ttl", metavar="SECONDS", min=1, max=31_536_000, help="How long it is good.")
    ] = 3_600.0,
    config: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
) -> None:
    """Make a token for development, signed with the shared secret.

    Reads the settings of the broker (A2A_HANDOFF_AUTH_SECRET and its like, a2a-handoff.toml).
    """
    from a2a_handoff.cli import minting

    typer.echo(minting.token(sub=sub, tenant=tenant, scope=scope, ttl_s=ttl, config=config))


@app.command()
def demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave broker and agents running until Ctrl-C.")
    ] = False,
) -> None:
    """Start a broker and agents, show what it does.

    Nothing is left behind.
    """
    from a2a_handoff.demo import run

    raise typer.Exit(run(keep=keep))


@app.command()
def mcp(
    *,
    agent: Annotated[
        str, typer.Option(metavar="AGENT", envvar="A2A_HANDOFF_AGENT", help="The agent that works here.")
    ] = "cursor",
    url: Url = DEFAULT_URL,
    token: Token = "",
    platform: Annotated[
        str,
        typer.Option(metavar="NAME", help="Where it runs: cowork, cursor, claude-code, ... Default: its id."),
    ] = "",
    capability: Annotated[
        list[str],
        typer.Option(
            default_factory=list, show_default=False, metavar="NAME", help="What it can do; repeat it."
        ),
    ],
    workspace: Annotated[str, typer.Option(metavar="NAME", help="Its workspace.")] = "",
    instance: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Names this process among several of the agent, over restarts. Default: a new name.",
        ),
    ] = "",
) -> None:
    """The broker's MCP tools on standard input and output.

    For editors and assistants that start their MCP servers. It registers the agent and keeps it present.
    """
    from uuid import uuid4

    from a2a_handoff.cli import mcp as serving
    from a2a_handoff.transports.mcp.calls import Caller

    caller = Caller(
        agent_id=agent,
        platform=platform,
        workspace=workspace,
        instance_id=instance or str(uuid4()),
        capabilities=dict.fromkeys(capability, True),
    )
    raise typer.Exit(serving.serve(Place(url, token), caller, anew=bool(platform or capability or workspace)))


# --- agents --------------------------------------------------------------------------------------


@agents_app.command("list")
def agents_list(*, url: Url = DEFAULT_URL, token: Token = "", as_json: Json = False) -> None:
    """The agents, their presence and load."""
    from a2a_handoff.cli import asking

    asking.agents(Place(url, token), as_json=as_json)


@agents_app.command("show")
def agents_show(agent_id: str, *, url: Url = DEFAULT_URL, token: Token = "", as_json: Json = False) -> None:
    """One agent in full."""
    from a2a_handoff.cli import asking

    asking.agent(Place(url, token), agent_id, as_json=as_json)


@agents_app.command("check")
def agents_check(
    cards: Annotated[
        list[str], typer.Argument(metavar="FILE|URL...", help="AgentCards; - for standard input.")
    ],
    *,
    live: Annotated[bool, typer.Option("--live", help="Also see whether their addresses answer.")] = False,
    as_json: Json = False,
) -> None:
    """Check AgentCards, without a broker.

    Errors, warnings and hints are shown with line and column. Exit code 1: there is an error.
    """
    from a2a_handoff.cli import checking

    raise typer.Exit(checking.check_cards(cards, live=live, as_json=as_json))


# --- handoffs ------------------------------------------------------------------------------------


@handoffs_app.command("list")
def handoffs_list(
    *,
    state: Annotated[
        list[str],
        typer.Option(
            default_factory=list,
            show_default=False,
            metavar="STATE",
            help="Only in this state, such as offered; repeat it.",
        ),
    ],
    agent: Annotated[
        str, typer.Option(metavar="AGENT", help="Only those that this agent sent or holds.")
    ] = "",
    correlation_id: Annotated[str, typer.Option(metavar="ID", help="Only those of this chain.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="How many at a time.")] = 20,
    cursor: Annotated[str, typer.Option(metavar="CURSOR", help="Go on where a page ended.")] = "",
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: Json = False,
) -> None:
    """Handoffs, the newest update first."""
    from a2a_handoff.cli import asking

    asking.handoffs(
        Place(url, token),
        states=state,
        agent=agent,
        correlation_id=correlation_id,
        limit=limit,
        cursor=cursor,
        as_json=as_json,
    )


@handoffs_app.command("show")
def handoffs_show(
    handoff_id: str, *, url: Url = DEFAULT_URL, token: Token = "", as_json: Json = False
) -> None:
    """One handoff with attempts, result and trace."""
    from a2a_handoff.cli import asking

    asking.handoff(Place(url, token), handoff_id, as_json=as_json)


@handoffs_app.command("events")
def handoffs_events(
    handoff_id: str,
    *,
    after: Annotated[int, typer.Option(min=0, metavar="N", help="Only events after this number.")] = 0,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: Json = False,
) -> None:
    """The log of one handoff."""
    from a2a_handoff.cli import asking

    asking.events(Place(url, token), handoff_id, after=after, as_json=as_json)


@app.command()
def chain(correlation_id: str, *, url: Url = DEFAULT_URL, token: Token = "", as_json: Json = False) -> None:
    """A chain of handoffs as a tree.

    Every attempt is shown with its reason, and the whole chain's trace.
    """
    from a2a_handoff.cli import asking

    asking.chain(Place(url, token), correlation_id, as_json=as_json)


# --- tasks ---------------------------------------------------------------------------------------


@app.command()
def send(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The task in words; - for standard input.")],
    *,
    context: ContextFile = "",
    source: Source = "",
    target: Target = "",
    capability: Capability,
    skill: Skill = "",
    domain: Domain = "",
    tag: Tag,
    platform: Platform = "",
    summary: Summary = "",
    intent: Intent = "",
    fact: Fact,
    mode: Annotated[str, typer.Option(metavar="transfer|delegate", help="Whether the sender lets go.")] = "",
    priority: Annotated[
        str, typer.Option(metavar="low|normal|high|urgent", help="Its place in inboxes.")
    ] = "",
    correlation_id: Annotated[str, typer.Option(metavar="ID", help="The chain that it belongs to.")] = "",
    parent: Annotated[str, typer.Option(metavar="ID", help="The handoff that it continues.")] = "",
    replay_safe: Annotated[
        bool, typer.Option("--replay-safe", help="Running it twice does no harm.")
    ] = False,
    file: Annotated[
        list[Path],
        typer.Option(
            default_factory=list, show_default=False, metavar="PATH", help="A file to send along; repeat it."
        ),
    ],
    no_stream: Annotated[bool, typer.Option("--no-stream", help="Wait for the whole answer.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: Json = False,
) -> None:
    """Send a task and show what comes back.

    Its output goes to standard output, notes on the way to standard error.

    Exit code 0: completed. 1: failed, returned, canceled, or it waits for an answer. 3: no broker.
    """
    from a2a_handoff.cli import send as sending

    wishes = sending.Wishes(
        context=_file(context),
        source=source,
        target=target,
        capabilities=tuple(capability),
        skill=skill,
        domain=domain,
        tags=tuple(tag),
        platform=platform,
        summary=summary,
        intent=intent,
        facts=tuple(fact),
        mode=mode,
        priority=priority,
        correlation_id=correlation_id,
        parent=parent,
        replay_safe=replay_safe,
        named=bool(token),
    )
    words = sys.stdin.read() if text == "-" else text
    if not words.strip():
        raise Failed("TEXT: must not be blank", code=USAGE)
    raise typer.Exit(
        sending.send(Place(url, token), words, file, wishes, stream=not no_stream, as_json=as_json)
    )


@app.command()
def resolve(
    text: Annotated[str, typer.Argument(metavar="[TEXT]", help="The task in words.")] = "A task.",
    *,
    context: ContextFile = "",
    source: Source = "",
    target: Target = "",
    capability: Capability,
    skill: Skill = "",
    domain: Domain = "",
    tag: Tag,
    platform: Platform = "",
    intent: Intent = "",
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: Json = False,
) -> None:
    """Who would get a task, and why.

    The candidates in their order, and those that were passed over. Nothing is sent.

    Exit code 0: somebody would, now or later. 1: nobody.
    """
    from a2a_handoff.cli import asking
    from a2a_handoff.cli.send import Wishes

    wishes = Wishes(
        context=_file(context),
        source=source,
        target=target,
        capabilities=tuple(capability),
        skill=skill,
        domain=domain,
        tags=tuple(tag),
        platform=platform,
        intent=intent,
        named=bool(token),
    )
    raise typer.Exit(asking.resolution(Place(url, token), text, wishes, as_json=as_json))


@context_app.command("check")
def context_check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON file; - for standard input.")],
) -> None:
    """Check a handoff context, without a broker.

    Its fields, its tokens and what would be cut. Exit code 1: it would be refused.
    """
    from a2a_handoff.cli import checking

    raise typer.Exit(checking.check_context(file))


def _file(name: str) -> bytes:
    """The bytes of a file, or of standard input for ``-``; none for no name."""
    if not name:
        return b""
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise Failed(f"--context: {name}: {error.strerror}", code=USAGE) from None
