"""A handoff to play the machine with: a request, means, and every command against every state."""

from __future__ import annotations

from collections.abc import Sequence

from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Readiness, Role
from a2a_handoff.core.commands import Command
from a2a_handoff.core.context import HandoffContext, HandoffOptions, Mode, Package
from a2a_handoff.core.events import Event, State
from a2a_handoff.core.handoff import Handoff, evolve
from a2a_handoff.core.machine import decide
from a2a_handoff.core.policy import Policy
from a2a_handoff.core.tracing import HopTrace, ParentSource, trace_id_of

CORRELATION = "5f0c2f0e-7a51-4d0b-9d7e-2f6c1b9a0d11"
NOW = 1_800_000_000.0


def candidate(agent_id: str, readiness: Readiness = Readiness.PROBE, role: Role = Role.AGENT) -> ev.Candidate:
    return ev.Candidate(agent_id=agent_id, readiness=readiness, role=role)


def means(*eligible: str, supervisors: tuple[ev.Candidate, ...] = (), n: int = 1) -> ev.Means:
    return ev.Means(
        offer_id=f"offer-{n}",
        span_id=f"{n:016x}",
        jitter=0.5,
        eligible=frozenset(eligible),
        supervisors=supervisors,
    )


def trace() -> HopTrace:
    return HopTrace(
        trace_id=trace_id_of(CORRELATION),
        sampled=True,
        hop_span_id="00000000000000aa",
        route_span_id="00000000000000ab",
        parent_span_id="00000000000000ac",
        parent_source=ParentSource.ROOT,
    )


def request(
    *candidates: ev.Candidate,
    wait: bool = False,
    reason: ev.Outcome | None = None,
    passed_over: tuple[ev.PassedOver, ...] = (),
    path: tuple[str, ...] = ("sender",),
    hop_count: int = 0,
    target: str = "",
    parent: ev.ParentRef | None = None,
    policy: Policy | None = None,
    handoff_id: str = "h-1",
    deadline_at: float = NOW + 3600,
    replay_safe: bool = False,
    wait_for_agent_s: float | None = None,
) -> cmd.Request:
    context = HandoffContext(
        correlation_id=CORRELATION,
        source_agent=path[-1],
        target_agent=target,
        conversation_summary="The customer disputes an invoice.",
        user_intent="Correct the invoice of March.",
        hop_count=hop_count,
        handoff_chain=path,
    )
    options = HandoffOptions(replay_safe=replay_safe, wait_for_agent_s=wait_for_agent_s)
    return cmd.Request(
        handoff_id=handoff_id,
        tenant="default",
        sender=path[-1],
        context_id="c-1",
        message=b'{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"hello"}]}',
        message_id="m-1",
        request_metadata=b"",
        extensions=(),
        package=Package(context=context, options=options),
        resolution=ev.Resolution(candidates=candidates, wait=wait, reason=reason, passed_over=passed_over),
        policy=policy or Policy(),
        trace=trace(),
        deadline_at=deadline_at,
        means=means(),
        parent=parent,
    )


class World:
    """One handoff, its log and a clock that only goes on when told."""

    def __init__(self, first: cmd.Request) -> None:
        self.now = NOW
        self.handoff: Handoff | None = None
        self.log: list[Event] = []
        self.do(first)

    @property
    def h(self) -> Handoff:
        assert self.handoff is not None
        return self.handoff

    def do(self, *commands: Command) -> list[Event]:
        """Obey, and give the new events."""
        new: list[Event] = []
        for command in commands:
            events = decide(self.handoff, command, self.now)
            for event in events:
                self.handoff = evolve(self.handoff, event)
            new.extend(events)
        self.log.extend(new)
        return new

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.log]


def in_state(state: State) -> World:
    """A handoff that stands in ``state``, by the shortest way."""
    billing = candidate("billing")
    world = World(request(billing, candidate("senior")))
    ack = cmd.Acknowledge(agent_id="billing", attempt=1, remote=ev.Remote(task_id="r-1"))
    match state:
        case State.REQUESTED:
            return World(request(wait=True))
        case State.OFFERED:
            pass
        case State.ACKNOWLEDGED:
            world.do(ack)
        case State.INPUT_REQUIRED:
            world.do(ack, cmd.AskCaller(attempt=1, message=b"{}"))
        case State.AUTH_REQUIRED:
            world.do(ack, cmd.AskCaller(attempt=1, auth=True, message=b"{}"))
        case State.HANDED_OFF:
            attach = cmd.AttachChild(child_id="child", mode=Mode.TRANSFER, agent_id="billing")
            world.do(ack, attach, cmd.ChildTookOver(child_id="child"))
        case State.ESCALATED:
            boss = candidate("boss", Readiness.PERSON, Role.SUPERVISOR)
            world = World(request(billing))
            world.do(
                cmd.Decline(agent_id="billing", means=means()),
                cmd.Resolved(resolution=ev.Resolution(), means=means(supervisors=(boss,), n=2)),
            )
        case State.COMPLETED:
            world.do(ack, cmd.Complete(attempt=1))
        case State.FAILED:
            world.do(ack, cmd.Fail(attempt=1, detail="broken"))
        case State.CANCELED:
            world.do(ack, cmd.Cancel(by="sender"), cmd.ConfirmCancel(confirmed=True))
        case State.RETURNED:
            world.do(ack, cmd.Release(attempt=1, reason="not mine"))
        case State.EXPIRED:
            world.do(ack, cmd.Expire())
    assert world.h.state is state
    return world


def every_command() -> Sequence[Command]:
    """One of each, with values that fit where they may be obeyed."""
    fresh = means("senior", n=9)
    return (
        request(candidate("billing")),
        cmd.Resolved(resolution=ev.Resolution(candidates=(candidate("senior"),)), means=fresh),
        cmd.Acknowledge(agent_id="", attempt=0),
        cmd.Decline(agent_id="", means=fresh),
        cmd.DeliveryFailed(
            attempt=1, outcome=ev.Outcome.TARGET_UNAVAILABLE, detail="refused", means=fresh, again=False
        ),
        cmd.DeliveryUnsure(attempt=1, detail="no answer", means=fresh),
        cmd.OfferLapsed(attempt=1, means=fresh),
        cmd.TargetLost(attempt=1, detail="silent", means=fresh),
        cmd.Progress(outputs=(ev.Output(kind=ev.OutputKind.STATUS, body=b"{}"),)),
        cmd.AskCaller(message=b"{}"),
        cmd.Reply(message=b"{}", message_id="m-2"),
        cmd.Complete(),
        cmd.Fail(detail="broken"),
        cmd.Release(reason="not mine"),
        cmd.Cancel(by="sender"),
        cmd.ConfirmCancel(confirmed=True),
        cmd.Expire(),
        cmd.WaitOver(means=fresh),
        cmd.AttachChild(child_id="child-2", mode=Mode.DELEGATE),
        cmd.ChildTookOver(child_id="child"),
        cmd.ChildAsks(child_id="child"),
        cmd.ChildOver(child_id="child", state=State.COMPLETED),
    )
