"""Handoffs told step by step, with the events, states and spans that each step makes.

Ids and times are counted, so that the same story is the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hypothesis import strategies as st

from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Readiness
from a2a_handoff.core.commands import Command
from a2a_handoff.core.context import HandoffContext, HandoffOptions, Mode, Package, Requirements
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.core.events import Event, Outcome, State
from a2a_handoff.core.handoff import Handoff
from a2a_handoff.core.machine import decide_all
from a2a_handoff.core.policy import Policy
from a2a_handoff.core.spans import SpanRecord, span_of_holder, spans_of
from a2a_handoff.core.tracing import InboundTrace, plan_hop
from a2a_handoff.ports import Change, Recorded

T0 = 1_750_000_000.0


@dataclass(frozen=True)
class Post:
    method: str = "POST"
    route: str = "/"
    rpc_method: str = "SendMessage"
    protocol_version: str = "1.0"
    started_at: float = T0


@dataclass(frozen=True)
class Step:
    before: Handoff | None
    event: Event
    after: Handoff
    new_chain: bool


class Story:
    """A broker reduced to its core: decide, evolve, derive spans."""

    def __init__(self, *, ratio: float = 1.0, tenant: str = "default") -> None:
        self.now = T0
        self.ratio = ratio
        self.tenant = tenant
        self.handoffs: dict[str, Handoff] = {}
        self.steps: list[Step] = []
        self.changes: list[Change] = []
        self._ids = 0
        self._chains: set[str] = set()

    @property
    def spans(self) -> list[SpanRecord]:
        return [span for step in self.steps for span in spans_of_step(step)]

    def spans_named(self, name: str) -> list[SpanRecord]:
        return [span for span in self.spans if span.name == name]

    def new_span_id(self) -> str:
        self._ids += 1
        return f"{0xA000_0000_0000_0000 + self._ids:016x}"

    def new_id(self) -> str:
        self._ids += 1
        return f"00000000-0000-7000-8000-{self._ids:012x}"

    def means(self, *eligible: str) -> ev.Means:
        return ev.Means(
            offer_id=self.new_id(), span_id=self.new_span_id(), eligible=frozenset(eligible or AGENTS)
        )

    def request(
        self,
        *candidates: str,
        sender: str = "agent-a",
        correlation_id: str = "",
        inbound: InboundTrace | None = None,
        parent: str = "",
        mode: Mode = Mode.DELEGATE,
        call: Post | None = None,
        capabilities: tuple[str, ...] = ("canBrowse",),
        readiness: Readiness = Readiness.PROBE,
        dropped: tuple = (),
        policy: Policy | None = None,
    ) -> str:
        above = self.handoffs[parent] if parent else None
        handoff_id = self.new_id()
        trace, correlation_id = plan_hop(
            correlation_id=above.correlation_id if above else correlation_id,
            tenant=self.tenant,
            new_correlation_id=self.new_id(),
            inbound=inbound or InboundTrace(),
            call=call or Post(started_at=self.now),
            new_span_id=self.new_span_id,
            stored=span_of_holder(above) if above else None,
            known_chain=above is not None or correlation_id in self._chains,
            ratio=self.ratio,
        )
        self.now += 0.25
        context = HandoffContext(
            correlation_id=correlation_id,
            source_agent=sender,
            conversation_summary="Nobody may read this.",
            user_intent="A secret wish.",
            hop_count=above.hop_count if above else 0,
            handoff_chain=above.path if above else (sender,),
        )
        request = cmd.Request(
            handoff_id=handoff_id,
            tenant=self.tenant,
            sender=sender,
            context_id="ctx-1",
            message=b'{"secret":"body"}',
            message_id=handoff_id,
            request_metadata=b"",
            extensions=(),
            package=Package(
                context=context,
                requirements=Requirements(capabilities=capabilities),
                options=HandoffOptions(),
                tokens=12,
                dropped=dropped,
            ),
            resolution=ev.Resolution(
                candidates=tuple(ev.Candidate(agent_id=a, readiness=readiness) for a in candidates),
                reason=None if candidates else ev.Outcome.NO_CAPABLE_AGENT,
                rule="browse-first",
                started_at=self.now - 0.125,
            ),
            policy=policy or Policy(),
            trace=trace,
            deadline_at=T0 + 86_400,
            means=self.means(),
            parent=ev.ParentRef(handoff_id=parent, mode=mode, deadline_at=T0 + 86_400) if parent else None,
            returns_to=sender,
        )
        new_chain = correlation_id not in self._chains
        self._chains.add(correlation_id)
        self._commit(None, (request,), new_chain=new_chain)
        if above is not None:
            self.do(parent, cmd.AttachChild(child_id=handoff_id, mode=mode, target_open=True))
        return handoff_id

    def do(self, handoff_id: str, *commands: Command, after_s: float = 0.5) -> Handoff:
        """Commands decided and committed together, ``after_s`` seconds later."""
        self.now += after_s
        self._commit(self.handoffs[handoff_id], commands)
        return self.handoffs[handoff_id]

    def ack(self, handoff_id: str, *, synthetic: bool = True, score: float | None = None) -> Handoff:
        holder = self.handoffs[handoff_id].holder
        command = cmd.Acknowledge(agent_id=holder, synthetic_span=synthetic, context_score=score)
        return self.do(handoff_id, command)

    def hand_over(self, child_id: str, parent_id: str, *, synthetic: bool = True) -> None:
        """The child's acceptance and the parent's end of work, in one commit."""
        self.ack(child_id, synthetic=synthetic)
        self.do(parent_id, cmd.ChildTookOver(child_id=child_id), after_s=0)

    def _commit(
        self, before: Handoff | None, commands: Iterable[Command], *, new_chain: bool = False
    ) -> None:
        start = before
        steps = decide_all(before, commands, self.now)
        recorded: list[Recorded] = []
        for event, after in steps:
            self.steps.append(Step(before, event, after, new_chain))
            position = len(self.steps)
            recorded.append(Recorded(handoff_id=after.id, seq=after.version, position=position, event=event))
            self.handoffs[after.id] = after
            before = after
        if steps:
            after = steps[-1][1]
            change = Change(before=start, after=after, recorded=tuple(recorded), new_chain=new_chain)
            self.changes.append(change)


CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CHAIN = "0af76519-16cd-4dd8-8448-eb211c80319c"
AGENTS = ("agent-b", "agent-c", "agent-d", "agent-e")


def spans_of_step(step: Step) -> tuple[SpanRecord, ...]:
    return spans_of(step.before, step.event, step.after, new_chain=step.new_chain)


def roots(spans: Iterable[SpanRecord]) -> list[SpanRecord]:
    return [span for span in spans if not span.parent_span_id]


def orphans(spans: Iterable[SpanRecord]) -> list[SpanRecord]:
    """Spans whose parent is neither among them nor came from outside."""
    spans = list(spans)
    ids = {(span.trace_id, span.span_id) for span in spans}
    return [
        span
        for span in spans
        if span.parent_span_id and not span.parent_remote and (span.trace_id, span.parent_span_id) not in ids
    ]


# --- any story at all ----------------------------------------------------------------------------


def a_command(draw, story: Story, handoff_id: str):
    h = story.handoffs[handoff_id]
    number = h.attempt.number if h.attempt else 0
    holder = h.holder
    choices = [
        cmd.Acknowledge(agent_id=holder, synthetic_span=draw(st.booleans())),
        cmd.Decline(agent_id=holder, means=story.means()),
        cmd.DeliveryFailed(
            attempt=number, outcome=Outcome.TARGET_UNAVAILABLE, detail="", means=story.means()
        ),
        cmd.DeliveryUnsure(attempt=number, detail="", means=story.means()),
        cmd.OfferLapsed(attempt=number, means=story.means()),
        cmd.Progress(outputs=(ev.Output(kind=ev.OutputKind.STATUS),)),
        cmd.Complete(),
        cmd.Fail(),
        cmd.Release(),
        cmd.Cancel(by="agent-a"),
        cmd.ConfirmCancel(confirmed=True),
        cmd.Resolved(
            resolution=ev.Resolution(
                candidates=tuple(ev.Candidate(agent_id=a, readiness=Readiness.PROBE) for a in AGENTS)
            ),
            means=story.means(),
        ),
        cmd.WaitOver(means=story.means()),
    ]
    choices += [cmd.ChildTookOver(child_id=c.handoff_id) for c in h.children]
    choices += [
        cmd.ChildOver(child_id=c.handoff_id, state=story.handoffs[c.handoff_id].state)
        for c in h.children
        if story.handoffs[c.handoff_id].state.terminal
    ]
    return draw(st.sampled_from(choices))


@st.composite
def tales(draw):
    """A chain with up to four handoffs, any commands in any order, and everything ended at last."""
    story = Story()
    traced = draw(st.sampled_from(["", CALLER]))
    story.request(
        *draw(st.permutations(AGENTS).map(lambda a: a[:2])),
        readiness=draw(st.sampled_from([Readiness.PROBE, Readiness.PULL])),
        inbound=InboundTrace(http=traced, trusted=draw(st.booleans())),
        correlation_id=draw(st.sampled_from(["", CHAIN])),
    )
    for _ in range(draw(st.integers(0, 16))):
        handoff_id = draw(st.sampled_from(sorted(story.handoffs)))
        h = story.handoffs[handoff_id]
        kind = draw(st.sampled_from(("hand on", "accept", "anything")))
        try:
            if kind == "hand on" and len(story.handoffs) < 4 and h.owner == "target":
                free = [agent for agent in AGENTS if agent not in h.path]
                mode = draw(st.sampled_from(Mode))
                story.request(*free[:2], sender=h.holder, parent=handoff_id, mode=mode)
            elif kind == "accept" and h.state is State.OFFERED:
                story.ack(handoff_id, synthetic=draw(st.booleans()))
                if h.parent is not None and h.parent.mode is Mode.TRANSFER:
                    story.do(h.parent.handoff_id, cmd.ChildTookOver(child_id=handoff_id), after_s=0)
            else:
                story.do(handoff_id, a_command(draw, story, handoff_id))
        except HandoffError:
            continue
    for handoff_id in sorted(story.handoffs, reverse=True):
        if not story.handoffs[handoff_id].state.terminal:
            story.do(handoff_id, cmd.Expire())
    return story
