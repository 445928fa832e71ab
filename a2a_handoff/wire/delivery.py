"""What goes to a target, and what its answers mean.

Duty: the message of an offer and of a task with our extension's data in it; from an answer to commands.
Rules: what the sender wrote travels byte for byte, only our own members are put in. A directive in an
answer outranks the status that carries it.
Sources: docs/reference/extension.md; A2A 1.0 section 4.6.2 (where an extension's data stands).
Not here: how it travels (``client``), what follows (``core.machine``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from a2a_handoff.core import commands as cmd
from a2a_handoff.core import events as ev
from a2a_handoff.core.agents import Agent
from a2a_handoff.core.budget import Count, Fit, fit
from a2a_handoff.core.commands import Command
from a2a_handoff.core.context import (
    CONTEXT_KEY,
    EXTENSION_URI,
    TOKEN_BUDGET,
    HandoffContext,
    Overflow,
    Profile,
)
from a2a_handoff.core.errors import HandoffError
from a2a_handoff.core.events import Output, OutputKind
from a2a_handoff.core.handoff import Attempt, Handoff
from a2a_handoff.core.score import context_score
from a2a_handoff.core.tracing import SpanRef, shows_itself
from a2a_handoff.ports import Delivery, RemoteState, Update
from a2a_handoff.wire.context import Stamp, write_context
from a2a_handoff.wire.directive import Directive, Verb, read_directive
from a2a_handoff.wire.fields import members_of

_ENCODE = msgspec.json.Encoder().encode
_NAMES = msgspec.json.Decoder(list[str] | None).decode


def fitted_context(event: ev.HandoffRequested, agent: Agent, count: Count) -> Fit:
    """The context as this target gets it: itself on the path, one hop deeper, within its own limit.

    The sender's profile is applied here and not to what is stored, so that the chain keeps everything.
    """
    context = event.package.context
    context = replace(
        context,
        target_agent=agent.agent_id,
        hop_count=context.hop_count + 1,
        handoff_chain=(*context.handoff_chain, agent.agent_id),
    )
    profile = event.package.options.context_profile
    if agent.token_budget is None and profile is Profile.RICH:
        return Fit(context=context, dropped=event.package.dropped)
    return fit(
        context,
        count=count,
        limit=TOKEN_BUDGET if agent.token_budget is None else agent.token_budget,
        overflow=Overflow.TRIM,
        profile=profile,
        earlier=event.package.dropped,
    )


def delivered_context(event: ev.HandoffRequested, agent: Agent, count: Count) -> HandoffContext:
    """What a target was given, to compare with what it passes on."""
    return fitted_context(event, agent, count).context


def _package_json(
    event: ev.HandoffRequested,
    h: Handoff,
    attempt: Attempt,
    fitted: Fit,
    *,
    ack_wait_s: float | None = None,
) -> bytes:
    stamp = Stamp(
        handoff_id=h.id,
        offer_id=attempt.offer_id,
        attempt=attempt.number,
        ack_wait_s=ack_wait_s,
        traceparent=traceparent_of(h, attempt),
        deadline_at=h.deadline_at,
        dropped=fitted.dropped,
        warnings=fitted.warnings,
    )
    return write_context(event.package, stamp, fitted.context)


def package_json(
    event: ev.HandoffRequested, h: Handoff, attempt: Attempt, agent: Agent, count: Count
) -> bytes:
    """The context package as this target gets it, for one that fetches it."""
    return _package_json(event, h, attempt, fitted_context(event, agent, count))


def snapshot_json(event: ev.HandoffRequested) -> bytes:
    """The immutable snapshot of one hop: the context as it was requested, and the whole transcript."""
    context = write_context(event.package, Stamp(handoff_id=event.handoff_id))
    transcript = event.package.options.transcript
    return _with_member(context, "transcript", transcript) if transcript else context


def traceparent_of(h: Handoff, attempt: Attempt) -> str:
    """The header of a call for this attempt: its ``invoke_agent`` span is the parent of what follows."""
    ref = SpanRef(trace_id=h.trace.trace_id, span_id=attempt.span_id, sampled=h.trace.sampled)
    return ref.traceparent


def task_delivery(
    event: ev.HandoffRequested, h: Handoff, attempt: Attempt, agent: Agent, count: Count
) -> Delivery:
    """The task itself, with the context package in the two places where agents look for it.

    It may have come in two more. There it would contradict ours, and have the transcript.
    """
    package = _package_json(event, h, attempt, fitted_context(event, agent, count))
    return Delivery(
        message=_with_extension(event.message, package),
        metadata=_with_member(event.request_metadata, CONTEXT_KEY, package, without=EXTENSION_URI),
        extensions=_extensions(event.extensions),
        accepted_output_modes=event.accepted_output_modes,
        traceparent=traceparent_of(h, attempt),
        tracestate=h.trace.tracestate,
    )


def offer_delivery(
    event: ev.HandoffRequested, h: Handoff, attempt: Attempt, agent: Agent, count: Count, *, message_id: str
) -> Delivery:
    """The question whether the agent is ready; no work may start from it."""
    fitted = fitted_context(event, agent, count)
    package = _package_json(event, h, attempt, fitted, ack_wait_s=h.policy.ack_wait_s)
    return _note(
        h,
        attempt,
        message_id=message_id,
        member="offer",
        body=Raw(package),
        text=f"Handoff offer: {fitted.context.user_intent}",
    )


def rescind_delivery(h: Handoff, attempt: Attempt, *, message_id: str) -> Delivery:
    """Tells an agent that an offer is void."""
    body = {"offer_id": attempt.offer_id, "attempt": attempt.number, "handoff_id": h.id}
    return _note(
        h,
        attempt,
        message_id=message_id,
        member="rescinded",
        body=body,
        text="The handoff offer is void.",
    )


def child_delivery(h: Handoff, attempt: Attempt, child: Handoff, task: bytes) -> Delivery:
    """Tells a target that waits what the handoff that it made asks, or how it ended.

    ``task`` is the child's A2A task. An answer goes to the broker, under the child's id.
    """
    attempt_of_child = child.attempt
    agent = attempt_of_child.agent_id if attempt_of_child is not None else "another agent"
    if child.state.asks:
        text = f"{agent} asks you. Answer with a message to the task {child.id}."
        message_id = f"{child.id}:{child.state.value}:{child.version}"
    else:
        text = f"The handoff to {agent} ended: {child.state}."
        message_id = f"{child.id}:{child.state.value}"
    body: dict[str, Any] = {
        "child": {"handoff_id": child.id, "state": child.state.value, "reason": child.detail},
    }
    parts: list[Any] = [{"text": text}, {"data": {"task": Raw(task)}}]
    message = {
        "messageId": message_id,
        "role": "ROLE_USER",
        "parts": parts,
        "metadata": {EXTENSION_URI: body},
        "extensions": [EXTENSION_URI],
    }
    return Delivery(
        message=_ENCODE(message),
        extensions=(EXTENSION_URI,),
        remote_task_id=attempt.remote.task_id,
        remote_context_id=attempt.remote.context_id,
        traceparent=traceparent_of(h, attempt),
        tracestate=h.trace.tracestate,
    )


def reply_delivery(h: Handoff, attempt: Attempt, message: bytes) -> Delivery:
    """A follow-up message of the caller, under the target's own ids."""
    return Delivery(
        message=message,
        extensions=(EXTENSION_URI,),
        remote_task_id=attempt.remote.task_id,
        remote_context_id=attempt.remote.context_id,
        traceparent=traceparent_of(h, attempt),
        tracestate=h.trace.tracestate,
    )


def _note(h: Handoff, attempt: Attempt, *, message_id: str, member: str, body: Any, text: str) -> Delivery:
    message = {
        "messageId": message_id,
        "role": "ROLE_USER",
        "parts": [{"text": text}],
        "metadata": {EXTENSION_URI: {member: body}},
        "extensions": [EXTENSION_URI],
    }
    return Delivery(
        message=_ENCODE(message),
        extensions=(EXTENSION_URI,),
        traceparent=traceparent_of(h, attempt),
        tracestate=h.trace.tracestate,
    )


def _extensions(named: tuple[str, ...]) -> tuple[str, ...]:
    return named if EXTENSION_URI in named else (*named, EXTENSION_URI)


def _with_extension(message: bytes, package: bytes) -> bytes:
    """The message with our data at ``metadata[URI]`` and the URI among its ``extensions``."""
    members: dict[str, Any] = dict(members_of(message) or {})
    metadata = bytes(members.get("metadata", b""))
    members["metadata"] = Raw(_with_member(metadata, EXTENSION_URI, package, without=CONTEXT_KEY))
    named = (_NAMES(members["extensions"]) if "extensions" in members else None) or []
    members["extensions"] = named if EXTENSION_URI in named else [*named, EXTENSION_URI]
    return _ENCODE(members)


def _with_member(raw: bytes, name: str, value: bytes, *, without: str = "") -> bytes:
    members = (members_of(raw) or {}) if raw else {}
    members.pop(without, None)
    return _ENCODE({**members, name: Raw(value)})


# --- answers -------------------------------------------------------------------------------------


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer means. ``directive`` is acted on after ``commands``.

    ``ended``: this conversation is over. ``target_open``: the target's task is, for all that, not.
    """

    commands: tuple[Command, ...]
    directive: Directive | None = None
    ended: bool = False
    target_open: bool = True


def interpret(
    h: Handoff,
    attempt: Attempt,
    update: Update,
    *,
    sent: HandoffContext,
    means: Callable[[Handoff], ev.Means],
    now: float,
) -> Verdict:
    """Read one answer. ``sent`` is the context that the target got: what a directive builds on."""
    first = attempt.acked_at is None
    try:
        directive = read_directive(update.metadata, now=now, parent=sent)
    except HandoffError as error:
        fail = cmd.Fail(
            attempt=attempt.number,
            agent_id=attempt.agent_id,
            outcome=ev.Outcome.INVALID_RESPONSE,
            detail=error.message,
        )
        return Verdict(commands=(fail,), ended=True, target_open=False)
    hands_on = directive is not None and directive.verb is Verb.HANDOFF
    if first and update.state is RemoteState.REJECTED and not hands_on:
        reason = "the agent rejected the task"
        decline = cmd.Decline(
            agent_id=attempt.agent_id, attempt=attempt.number, reason=reason, means=means(h)
        )
        return Verdict(commands=(decline,), ended=True, target_open=False)
    remote = ev.Remote(task_id=update.remote_task_id, context_id=update.remote_context_id)
    commands: list[Command] = []
    if first:
        receipt = directive.receipt if directive is not None else b""
        commands.append(
            cmd.Acknowledge(
                agent_id=attempt.agent_id,
                attempt=attempt.number,
                remote=remote,
                context_score=context_score(sent, receipt) if receipt else None,
                synthetic_span=not shows_itself(
                    update.traceparent, trace_id=h.trace.trace_id, invoked=attempt.span_id
                ),
            )
        )
    outputs = update.outputs
    if directive is not None and directive.verb in (Verb.HANDOFF, Verb.RELEASE):
        if outputs or not first:
            commands.append(_progress(attempt, outputs, remote))
        open_still = update.state is not None and not update.state.terminal and not update.reply
        return Verdict(commands=tuple(commands), directive=directive, ended=True, target_open=open_still)
    ended = end_of(attempt, update)
    if ended is not None:
        if not first and remote.task_id and remote != attempt.remote:
            commands.append(_progress(attempt, (), remote))
        return Verdict(commands=(*commands, ended), ended=True, target_open=False)
    if update.state is not None and update.state.asks:
        if not first and remote != attempt.remote:
            commands.append(_progress(attempt, (), remote))
        commands.append(
            cmd.AskCaller(
                attempt=attempt.number,
                agent_id=attempt.agent_id,
                auth=update.state is RemoteState.AUTH_REQUIRED,
                message=update.message,
                outputs=outputs,
            )
        )
        return Verdict(commands=tuple(commands), ended=True)
    if update.message:
        outputs = (*outputs, Output(kind=OutputKind.STATUS, body=update.message))
    goes_on = h.state.asks and update.state in (RemoteState.WORKING, RemoteState.SUBMITTED)
    if outputs or goes_on or (not first and remote.task_id and remote != attempt.remote):
        commands.append(_progress(attempt, outputs, remote))
    return Verdict(commands=tuple(commands))


def _progress(attempt: Attempt, outputs: tuple[Output, ...], remote: ev.Remote) -> cmd.Progress:
    return cmd.Progress(attempt=attempt.number, agent_id=attempt.agent_id, outputs=outputs, remote=remote)


def end_of(attempt: Attempt, update: Update) -> Command | None:
    """The command of a terminal answer; ``None`` for another one."""
    if update.reply or update.state is RemoteState.COMPLETED:
        return cmd.Complete(
            attempt=attempt.number,
            agent_id=attempt.agent_id,
            message=update.message,
            outputs=update.outputs,
        )
    match update.state:
        case RemoteState.FAILED:
            return cmd.Fail(
                attempt=attempt.number,
                agent_id=attempt.agent_id,
                detail="the target failed the task",
                message=update.message,
                outputs=update.outputs,
            )
        case RemoteState.REJECTED:
            return cmd.Release(
                attempt=attempt.number,
                agent_id=attempt.agent_id,
                reason="the target rejected the task after it had begun",
                outcome=ev.Outcome.TARGET_REJECTED,
            )
        case RemoteState.CANCELED:
            return cmd.ConfirmCancel(confirmed=True)
        case _:
            return None
