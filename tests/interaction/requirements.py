"""What every way into the broker must do: one line for each requirement, with where it is written.

A test names the requirements that it proves (``@proves("send.completes")``) and takes the fixture
``surface`` or, if it is about agents that fetch their work, ``way``; it then runs over each of them but
those in ``gaps``, which say why not. ``test_manifest`` fails if a requirement is not proven somewhere and
has no such reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SURFACES = (
    "jsonrpc-1.0",
    "jsonrpc-0.3",
    "http-1.0",
    "http-0.3",
    "grpc-1.0",
    "grpc-0.3",
    "jsonrpc-first",
    "http-first-bare",
    "http-first-envelope",
    "face",
    "native",
    "websocket",
    "mcp",
)
#: How agents fetch their work.
PULLS = ("rest", "websocket", "mcp")
#: For what is not about a way into the broker: its tests run once.
ONCE = ("",)

_FIRST = ("jsonrpc-first", "http-first-bare", "http-first-envelope")
_LATER = ("jsonrpc-1.0", "jsonrpc-0.3", "http-1.0", "http-0.3", "grpc-1.0", "grpc-0.3", "face")

_NATIVES: tuple[str, ...] = ("native", "websocket", "mcp")
_NATIVE_CONTEXT: Mapping[str, str] = dict.fromkeys(_NATIVES, "what it is sent is the context")
_NATIVE_REPLIES: Mapping[str, str] = dict.fromkeys(
    _NATIVES, "a reply goes by A2A; the native surfaces have no verb for it"
)
_NATIVE_FOLLOWS = {"native": "a log is read by its cursor at any time, and never refused"}
_NATIVE_LOGS: Mapping[str, str] = dict.fromkeys(_NATIVES, "a handoff shows its log and not a history")
_NATIVE_CHAINS: Mapping[str, str] = dict.fromkeys(
    _NATIVES, "each handoff has its own log; the chain is read at /api/chains"
)
_NO_OUTPUT = {
    "websocket": "its events tell what becomes of a handoff, and not its output: that is in the log",
    "mcp": "a tool answers once; check_handoffs shows how far a handoff is",
}
_FEW_LISTED = {
    "websocket": "nothing is listed over a socket: handoffs are read at /api/handoffs",
    "mcp": "check_handoffs shows a model the latest, and has no pages and no filters",
}
_NO_CLAIMS = {
    "mcp": "create_handoff takes no hops and no path: they are those of the handoff it names as parent"
}
_NO_LISTING: Mapping[str, str] = {
    **dict.fromkeys(_FIRST, "the first generation lists no tasks"),
    "grpc-0.3": "0.3 lists tasks over HTTP only",
}
_STRUCTS: Mapping[str, str] = dict.fromkeys(
    ("grpc-1.0", "grpc-0.3"), "protobuf has no order of members and no digits beyond a double"
)
_ALWAYS_BLOCKS: Mapping[str, str] = dict.fromkeys(
    _FIRST, "tasks/send waits; who does not want to wait streams"
)
_NATIVE_PUSH: Mapping[str, str] = dict.fromkeys(
    _NATIVES, "webhooks are set by A2A; how they are doing is shown by GET …/webhooks"
)
_ONE_PUSH = dict.fromkeys(_FIRST, "the first generation has one webhook for a task, and cannot remove it")
_NO_A2A: Mapping[str, str] = dict.fromkeys(_NATIVES, "it is not A2A")
_FIRST_SHAPES: Mapping[str, str] = dict.fromkeys(_FIRST, "its shapes are those of a2a.json of 0.1")
_FIRST_SESSIONS: Mapping[str, str] = dict.fromkeys(_FIRST, "there a session id binds nothing")
_OLD_SHAPES: Mapping[str, str] = dict.fromkeys(
    ("jsonrpc-0.3", "http-0.3", "grpc-0.3"), "its shapes are those of 0.3"
)
_OWN_FACE = {"face": "a face is that of one agent, so the target is always known"}


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """Something that holds on every one of ``ways`` but those in ``gaps`` (way: reason)."""

    id: str
    source: str
    behaviour: str
    gaps: Mapping[str, str] = field(default_factory=dict[str, str])
    ways: tuple[str, ...] = SURFACES


def _only(surfaces: tuple[str, ...], reason: str) -> dict[str, str]:
    return {name: reason for name in SURFACES if name not in surfaces}


REQUIREMENTS = (
    # --- sending ---------------------------------------------------------------------------------
    Requirement(
        id="send.completes",
        source="A2A 1.0 section 3.1.1; docs/how-to/send-a-task.md",
        behaviour="A message is answered with the finished task and its artifacts.",
    ),
    Requirement(
        id="send.plain",
        source="docs/reference/handoff-context.md, the twelve fields",
        behaviour="A message without a handoff context is a first hop with a minimal one.",
        gaps=_NATIVE_CONTEXT,
    ),
    Requirement(
        id="send.immediately",
        source="A2A 1.0 section 3.2.2",
        behaviour="Who does not want to wait is answered at once, and the task goes on.",
        gaps=_ALWAYS_BLOCKS,
    ),
    Requirement(
        id="send.decline",
        source="docs/reference/extension.md section 4",
        behaviour="A rejection is a decline: the next agent gets the task, and both attempts are told.",
    ),
    Requirement(
        id="send.returned",
        source="docs/reference/extension.md section 7",
        behaviour="A task that nobody takes comes back with every attempt and its reason.",
    ),
    Requirement(
        id="send.nobody",
        source="docs/reference/extension.md section 7",
        behaviour="A task that nobody can do comes back at once.",
        gaps=_OWN_FACE,
    ),
    Requirement(
        id="send.failed",
        source="A2A 1.0 section 4.1.3",
        behaviour="A task that its target fails is failed, with the target's words, and is not tried again.",
    ),
    Requirement(
        id="send.bytes",
        source="docs/reference/handoff-context.md, rules for all fields",
        behaviour="Facts arrive byte for byte, digits and order kept.",
        gaps={"mcp": "arguments of tools are read as values; they arrive equal, and not byte for byte"}
        | _STRUCTS,
    ),
    Requirement(
        id="send.trace",
        source="docs/reference/telemetry.md, a chain as a trace",
        behaviour="The caller's traceparent is continued to the target.",
    ),
    # --- asking and replying ---------------------------------------------------------------------
    Requirement(
        id="ask.reply",
        source="A2A 1.0 sections 3.4.3 and 6.3",
        behaviour="A question of the target ends the call, and the reply reaches the target's own task.",
        gaps=_NATIVE_REPLIES,
    ),
    Requirement(
        id="ask.shown",
        source="A2A 1.0 section 4.1.3",
        behaviour="A task that asks shows the question.",
    ),
    Requirement(
        id="ask.again",
        source="A2A 1.0 section 3.3.1",
        behaviour="A reply that is sent twice reaches the target once.",
        gaps=_NATIVE_REPLIES,
    ),
    Requirement(
        id="ask.twice",
        source="A2A 1.0 section 3.3.1",
        behaviour="Two questions may be answered in the same words: the second answer is no repeat.",
        gaps=_NATIVE_REPLIES,
    ),
    Requirement(
        id="reply.ended",
        source="A2A 1.0 section 3.1.1",
        behaviour="A message to a task that has ended is refused.",
        gaps=_NATIVE_REPLIES,
    ),
    Requirement(
        id="reply.unknown",
        source="A2A 1.0 section 3.4.2",
        behaviour="A message to a task that the broker did not make is refused.",
        gaps=dict.fromkeys(_FIRST, "there the client makes the id, so it begins a task") | _NATIVE_REPLIES,
    ),
    Requirement(
        id="ask.auth",
        source="A2A 1.0 sections 3.2.2 and 7.6.1",
        behaviour="A target that wants a login elsewhere ends the call: the task says so, and what is wanted.",
        gaps=_NO_A2A,
    ),
    Requirement(
        id="context.made",
        source="A2A 1.0 section 3.4.1",
        behaviour="A context that the broker made is in the answer, and stays that of the task.",
        gaps=_NO_A2A,
    ),
    Requirement(
        id="context.given",
        source="A2A 1.0 section 3.4.1",
        behaviour="A context that the caller named is kept, and one that cannot be kept is refused.",
        gaps=_NO_A2A,
    ),
    Requirement(
        id="context.inferred",
        source="A2A 1.0 section 3.4.3",
        behaviour="A message that names only its task is one of the context of the task.",
        gaps=_NO_A2A,
    ),
    Requirement(
        id="context.other",
        source="A2A 1.0 section 3.4.3",
        behaviour="A message that names a task and another context is refused.",
        gaps=_NO_A2A | _FIRST_SESSIONS,
    ),
    Requirement(
        id="context.said",
        source="a2a.proto of A2A 1.0, Message",
        behaviour="What an agent says names its task and its context, in answers and in streams.",
        gaps=_NO_A2A | dict.fromkeys(_FIRST, "there messages have no ids"),
    ),
    Requirement(
        id="ids.unique",
        source="A2A 1.0 section 3.4.2",
        behaviour="Every new task has an id of its own, which the broker made and the answer shows.",
        gaps=_NO_A2A | dict.fromkeys(_FIRST, "there the client makes the id"),
    ),
    # --- streams ---------------------------------------------------------------------------------
    Requirement(
        id="stream.order",
        source="A2A 1.0 sections 3.1.2, 3.5.2 and 4.2",
        behaviour="The task comes first, chunks in order with their flags, the end last.",
        gaps=_NO_OUTPUT,
    ),
    Requirement(
        id="stream.started",
        source="docs/reference/extension.md section 7",
        behaviour="The stream says who is being asked, before anything else happens.",
        gaps=_NO_OUTPUT,
    ),
    Requirement(
        id="stream.asks",
        source="A2A 1.0 section 3.1.2",
        behaviour="A stream ends where the caller must speak.",
        gaps={"native": "a log goes on; its reader sees the question in it"} | _NO_OUTPUT,
    ),
    Requirement(
        id="subscribe.catch_up",
        source="A2A 1.0 section 3.1.6",
        behaviour="Who joins later gets what there is and then what comes: no chunk twice, none lost.",
        gaps=_NO_OUTPUT,
    ),
    Requirement(
        id="subscribe.together",
        source="A2A 1.0 section 3.5.2",
        behaviour="All who follow a task are told the same, in the same order.",
        gaps=_NO_OUTPUT,
    ),
    Requirement(
        id="subscribe.ended",
        source="A2A 1.0 section 3.1.6",
        behaviour="A task that has ended cannot be followed.",
        gaps=_NATIVE_FOLLOWS | _NO_OUTPUT,
    ),
    Requirement(
        id="stream.ends",
        source="A2A 1.0 section 3.1.2",
        behaviour="A stream ends with its task, however that ends, and says the end once and last.",
        gaps=_NO_A2A,
    ),
    Requirement(
        id="subscribe.ends",
        source="A2A 1.0 section 3.1.6",
        behaviour="Who joined is told the task as it is, first, and its end last; then there is no more.",
        gaps=_NO_A2A,
    ),
    Requirement(
        id="subscribe.apart",
        source="A2A 1.0 section 3.5.2",
        behaviour="Who hangs up takes nothing from the others who follow the task.",
        gaps=_NATIVE_FOLLOWS | _NO_OUTPUT,
    ),
    # --- canceling -------------------------------------------------------------------------------
    Requirement(
        id="cancel.waiting",
        source="A2A 1.0 section 3.1.5",
        behaviour="A task that waits for an agent is canceled at once.",
        gaps={"face": "the inbox of a face's agent takes the offer although it is not there"},
    ),
    Requirement(
        id="cancel.offered",
        source="A2A 1.0 section 3.1.5; docs/reference/extension.md section 4",
        behaviour="An offer that nobody took is withdrawn.",
    ),
    Requirement(
        id="cancel.working",
        source="A2A 1.0 section 3.1.5",
        behaviour="The target is told, and its word is waited for.",
    ),
    Requirement(
        id="cancel.silent",
        source="docs/reference/settings.md, cancel_wait",
        behaviour="A target that does not answer a cancel is not waited for beyond cancel_wait.",
    ),
    Requirement(
        id="cancel.asked",
        source="A2A 1.0 section 3.1.5",
        behaviour="A task that waits for the caller can be canceled.",
    ),
    Requirement(
        id="cancel.escalated",
        source="docs/reference/life-cycle.md; A2A 1.0 section 3.1.5",
        behaviour="A task that waits for a person can be canceled, and the person is not asked any more.",
    ),
    Requirement(
        id="cancel.handed_on",
        source="docs/reference/extension.md section 6",
        behaviour="A cancel goes to the agent that has the task now.",
    ),
    Requirement(
        id="cancel.delegated",
        source="docs/reference/extension.md section 6",
        behaviour="A cancel of a task reaches its agent, and the agents that it gave parts of it to.",
    ),
    Requirement(
        id="cancel.ended",
        source="A2A 1.0 section 3.1.5",
        behaviour="A task that has ended, in whatever way, cannot be canceled.",
    ),
    # --- reading ---------------------------------------------------------------------------------
    Requirement(
        id="get.unknown",
        source="A2A 1.0 sections 5.4 and 13.1",
        behaviour="A task that does not exist is not found, whatever is asked of it.",
    ),
    Requirement(
        id="get.history",
        source="A2A 1.0 section 3.2.4; the 0.3 schema; a2a.json of 0.1",
        behaviour="historyLength cuts the history to its newest messages; each generation has its default.",
        gaps=_NATIVE_LOGS,
    ),
    Requirement(
        id="list.newest",
        source="A2A 1.0 section 3.1.4; docs/reference/mcp.md, check_handoffs",
        behaviour="What was handed off is listed, the newest first, as much as was asked for.",
        gaps=_NO_LISTING | {"websocket": _FEW_LISTED["websocket"]},
    ),
    Requirement(
        id="list.pages",
        source="A2A 1.0 section 3.1.4",
        behaviour="Pages come newest first; the cursor leads through all of them once.",
        gaps=_NO_LISTING | _FEW_LISTED,
    ),
    Requirement(
        id="list.filters",
        source="A2A 1.0 section 3.1.4",
        behaviour="A listing is filtered by context and state.",
        gaps=_NO_LISTING | _FEW_LISTED,
    ),
    Requirement(
        id="list.updated",
        source="A2A 1.0 section 3.1.4",
        behaviour="A task to which something happened is listed before newer ones.",
        gaps=_NO_LISTING | _NO_A2A,
    ),
    Requirement(
        id="list.artifacts",
        source="A2A 1.0 section 3.1.4",
        behaviour="A listing has no artifacts, or all of them if they were asked for.",
        gaps=_NO_LISTING | _NO_A2A,
    ),
    Requirement(
        id="list.token",
        source="A2A 1.0 section 3.1.4",
        behaviour="A page has its token always, and the last one an empty one.",
        gaps=_NO_LISTING | _NO_A2A,
    ),
    Requirement(
        id="get.same",
        source="A2A 1.0 sections 4 and 5.1",
        behaviour="A task is the same on whatever surface it is looked at.",
        gaps=_NO_A2A | dict.fromkeys(_FIRST, "it has fewer words for states, and other ids"),
    ),
    Requirement(
        id="shapes.proto",
        source="A2A 1.0 sections 5.5, 5.6.1 and 5.7; a2a.proto",
        behaviour="Every answer is ProtoJSON of the proto: names, words, times, and no other member.",
        gaps=_NO_A2A | _OLD_SHAPES | _FIRST_SHAPES | {"grpc-1.0": "what it sends is the proto itself"},
    ),
    # --- repeats ---------------------------------------------------------------------------------
    Requirement(
        id="repeat.same",
        source="A2A 1.0 section 3.3.1",
        behaviour="The same message again is the same task, and no agent hears of it.",
    ),
    Requirement(
        id="repeat.other",
        source="docs/reference/extension.md section 8",
        behaviour="The same id with other content is a conflict, and nothing is stored.",
        gaps=dict.fromkeys(_FIRST, "there it is the next message of the task"),
    ),
    Requirement(
        id="repeat.under_way",
        source="A2A 1.0 section 3.3.1",
        behaviour="A repeat of a message whose task is under way attaches to it.",
    ),
    Requirement(
        id="repeat.late",
        source="docs/reference/handoff-context.md, deadline",
        behaviour="A repeat that comes after the deadline is answered; a new message is refused.",
    ),
    Requirement(
        id="alias",
        source="A2A 0.1 TaskSendParams.id; A2A 1.0 section 3.4.2",
        behaviour="A task goes by the id that its client made, everywhere in that generation.",
        gaps=_only(_FIRST, "task ids are made by the server"),
    ),
    # --- what is refused -------------------------------------------------------------------------
    Requirement(
        id="context.faults",
        source="docs/reference/handoff-context.md; A2A 1.0 section 3.3.2",
        behaviour="Every fault of a context is named at its place, and nothing is stored.",
    ),
    Requirement(
        id="version.unknown",
        source="A2A 1.0 section 3.6.2",
        behaviour="A version that is not spoken is refused.",
        gaps={
            **dict.fromkeys(("http-first-bare", "http-first-envelope"), "its paths are its version"),
            **dict.fromkeys(_NATIVES, "it is not A2A"),
        },
    ),
    Requirement(
        id="version.patch",
        source="A2A 1.0 section 3.6",
        behaviour="A patch number does not count.",
        gaps=_NO_A2A | _FIRST_SHAPES,
    ),
    Requirement(
        id="version.empty",
        source="A2A 1.0 section 3.6.2",
        behaviour="No version is version 0.3.",
        gaps=_NO_A2A
        | _FIRST_SHAPES
        | {
            "http-1.0": "its paths are those of 1.0; 0.3 has its own",
            "grpc-1.0": "its service is that of 1.0; 0.3 has its own",
        },
    ),
    Requirement(
        id="message.required",
        source="A2A 1.0 sections 3.3.2 and 5.7",
        behaviour="A message without what it must have is refused at its place, and nothing is stored.",
        gaps=_NO_A2A | dict.fromkeys(_FIRST, "there a message has no id, and its role is that of the caller"),
    ),
    Requirement(
        id="errors.whole",
        source="A2A 1.0 sections 3.3.2, 9.5, 10.6 and 11.6",
        behaviour="An error has its code, its words, and details that say of what type they are and why.",
        gaps=_NO_A2A | _FIRST_SHAPES,
    ),
    Requirement(
        id="extension.demanded",
        source="A2A 1.0 sections 3.3.4 and 4.6.3",
        behaviour="The face of an agent that demands an extension answers nobody who does not speak it.",
        ways=("face", "grpc-1.0"),
    ),
    # --- who calls ---------------------------------------------------------------------------------
    Requirement(
        id="who.nobody",
        source="A2A 1.0 sections 3.3.2, 5.1, 7.4 and 13.1",
        behaviour="Where callers must say who they are nothing is done for those who do not.",
        gaps=_NO_A2A,
    ),
    Requirement(
        id="who.scope",
        source="A2A 1.0 section 3.3.2",
        behaviour="What a caller may not do is denied, and named.",
        gaps=_NO_A2A,
    ),
    Requirement(
        id="who.stranger",
        source="A2A 1.0 sections 3.3.2 and 13.1",
        behaviour="To a stranger a task is like one that never was, whatever is asked of it.",
        gaps=_NO_A2A,
    ),
    Requirement(
        id="who.list",
        source="A2A 1.0 sections 3.1.4 and 13.1",
        behaviour="A listing has what its caller may see, whatever it filters by.",
        gaps=_NO_LISTING | _NO_A2A,
    ),
    Requirement(
        id="card.extended",
        source="A2A 1.0 sections 3.1.11, 3.3.4 and 13.3",
        behaviour="The extended card is for those who said who they are, and undeclared where nobody must.",
        gaps=_NO_A2A | dict.fromkeys(_FIRST, "the first generation has no such card"),
    ),
    Requirement(
        id="guard.hops",
        source="docs/reference/extension.md section 8",
        behaviour="A chain that has used its hops gets no further one.",
        gaps=_NO_CLAIMS,
    ),
    Requirement(
        id="guard.loop",
        source="docs/reference/extension.md section 8",
        behaviour="An agent on the path does not get the task again; the error has the path.",
        gaps=_NO_CLAIMS,
    ),
    Requirement(
        id="guard.self",
        source="docs/reference/extension.md section 8",
        behaviour="The sender of a task does not get it.",
    ),
    # --- time and people -------------------------------------------------------------------------
    Requirement(
        id="deadline",
        source="docs/reference/extension.md section 7",
        behaviour="At its deadline a task ends, and the target is told to stop.",
    ),
    Requirement(
        id="supervisor",
        source="docs/reference/extension.md section 9",
        behaviour="What no agent takes goes to a supervisor, whose result is the task's.",
    ),
    # --- chains ----------------------------------------------------------------------------------
    Requirement(
        id="chain.directive",
        source="docs/reference/extension.md section 6",
        behaviour="A task that its target hands on stays one task for its caller, to the leaf's end.",
    ),
    Requirement(
        id="chain.stream",
        source="docs/reference/extension.md sections 6 and 7; A2A 1.0 section 3.1.2",
        behaviour="A stream goes on with the agent that took over: one task, one end, no state taken back.",
        gaps=_NATIVE_CHAINS,
    ),
    Requirement(
        id="chain.reply",
        source="docs/reference/extension.md section 6",
        behaviour="A question of the leaf reaches the caller, and the reply the leaf.",
        gaps=_NATIVE_REPLIES,
    ),
    Requirement(
        id="chain.questions",
        source="docs/reference/extension.md section 6; A2A 1.0 section 7.6",
        behaviour="Questions of the last of several agents reach the caller, and the answers that agent.",
        gaps=_NATIVE_REPLIES,
    ),
    Requirement(
        id="chain.delegate",
        source="docs/reference/handoff-context.md, parent_handoff_id",
        behaviour="An agent that calls for help names its own handoff: the help is a hop of that chain.",
    ),
    # --- agents ----------------------------------------------------------------------------------
    Requirement(
        id="agent.1.0",
        source="A2A 1.0 section 9",
        behaviour="An agent of a2a-sdk that speaks 1.0 is served: answers, streams and questions.",
    ),
    Requirement(
        id="odd.answers",
        source="A2A 1.0 sections 3.5.2 and 4.2",
        behaviour="What an agent made is answered whole and once, however oddly its stream runs.",
    ),
    Requirement(
        id="odd.streams",
        source="A2A 1.0 sections 3.5.2 and 4.2",
        behaviour="What an agent made is streamed whole and once, however oddly its own stream runs.",
        gaps=_NO_OUTPUT,
    ),
    Requirement(
        id="agent.0.3",
        source="A2A 0.3 section 7",
        behaviour="An agent that speaks 0.3 is served.",
    ),
    Requirement(
        id="agent.first",
        source="A2A 0.1",
        behaviour="An agent of the first generation is served.",
    ),
    # --- webhooks --------------------------------------------------------------------------------
    Requirement(
        id="push.message",
        source="A2A 1.0 sections 3.2.2 and 4.3.3",
        behaviour="A webhook that is named in the message hears every event of the task, its end too.",
        gaps=_NATIVE_PUSH,
    ),
    Requirement(
        id="push.set",
        source="A2A 1.0 sections 3.1.7 and 3.1.8",
        behaviour="A webhook is set for a task under way, shown as it was set, and told what comes.",
        gaps=_NATIVE_PUSH,
    ),
    Requirement(
        id="push.several",
        source="A2A 1.0 sections 3.1.7 and 3.1.9",
        behaviour="A task has several webhooks, each with its id; the same id set again is the same one.",
        gaps=_NATIVE_PUSH | _ONE_PUSH,
    ),
    Requirement(
        id="push.one",
        source="A2A 0.1; a2a-sdk 0.3 for configurations without an id",
        behaviour="Before 1.0 a task has one webhook without an id: set again it is replaced.",
        gaps=_NATIVE_PUSH
        | dict.fromkeys(("jsonrpc-1.0", "http-1.0", "grpc-1.0", "face"), "an id is made for each"),
    ),
    Requirement(
        id="push.delete",
        source="A2A 1.0 section 3.1.10",
        behaviour="A webhook is removed, once or again.",
        gaps=_NATIVE_PUSH | _ONE_PUSH,
    ),
    Requirement(
        id="push.unknown",
        source="A2A 1.0 section 3.1.8",
        behaviour="A webhook that is not there, or one of a task that is not there, is not found.",
        gaps=_NATIVE_PUSH,
    ),
    Requirement(
        id="push.address",
        source="A2A 1.0 section 13.2",
        behaviour="A webhook at an address that the broker may not call is refused where it is written.",
        gaps=_NATIVE_PUSH,
    ),
    # --- agents that fetch their work---------------------------------------------------------------
    Requirement(
        id="pull.work",
        source="docs/how-to/fetch-work.md; docs/reference/websocket.md; docs/reference/mcp.md",
        behaviour="Work is offered, accepted, reported and completed.",
        ways=PULLS,
    ),
    Requirement(
        id="pull.inbox",
        source="docs/how-to/fetch-work.md; docs/reference/mcp.md, check_handoffs",
        behaviour="The inbox has what is offered and not accepted, the most urgent first.",
        gaps={"websocket": "offers come by themselves; the inbox is read at /api/handoffs/pending"},
        ways=PULLS,
    ),
    Requirement(
        id="pull.decline",
        source="docs/how-to/fetch-work.md",
        behaviour="What an agent declines moves on at once, with the reason.",
        ways=PULLS,
    ),
    Requirement(
        id="pull.release",
        source="docs/how-to/fetch-work.md",
        behaviour="A task is given back to its sender, or failed.",
        ways=PULLS,
    ),
    Requirement(
        id="pull.fencing",
        source="docs/how-to/fetch-work.md",
        behaviour="A repeat does no harm; what has ended, or was never offered, is refused.",
        ways=PULLS,
    ),
    Requirement(
        id="pull.attempt",
        source="docs/how-to/fetch-work.md",
        behaviour="An offer says which attempt it is, and another one cannot be accepted.",
        gaps={"mcp": "tools name no attempt: the one that the agent has is meant"},
        ways=PULLS,
    ),
    Requirement(
        id="pull.asks",
        source="docs/how-to/fetch-work.md",
        behaviour="An agent asks the caller, hears the reply and goes on with it.",
        ways=PULLS,
    ),
    Requirement(
        id="pull.cursor",
        source="docs/how-to/fetch-work.md; docs/reference/websocket.md",
        behaviour="With a cursor only what is new is shown, without one all that is open.",
        gaps={"mcp": "watch_handoffs shows an offer until it is taken, and knows itself what was heard"},
        ways=PULLS,
    ),
    Requirement(
        id="pull.instances",
        source="docs/how-to/fetch-work.md",
        behaviour="Of several processes of one agent the first to accept has the task.",
        ways=PULLS,
    ),
    Requirement(
        id="pull.broadcasts",
        source="docs/how-to/fetch-work.md",
        behaviour="What one agent says the others of its workspace hear.",
        ways=PULLS,
    ),
    Requirement(
        id="pull.heartbeat",
        source="docs/how-to/fetch-work.md",
        behaviour="An agent says how it is doing, and the others see it.",
        gaps={"mcp": "every call is a sign of life; there is no tool to say how busy an agent is"},
        ways=PULLS,
    ),
    # --- cards -----------------------------------------------------------------------------------
    Requirement(
        id="card.paths",
        source="A2A 1.0 sections 8.2 and 14.3",
        behaviour="The card of the broker, and that of each face, is at the new and the old path.",
        ways=ONCE,
    ),
    Requirement(
        id="card.etag",
        source="A2A 1.0 section 8.6.1",
        behaviour="A card has an ETag, and who has it already is told so.",
        ways=ONCE,
    ),
    Requirement(
        id="card.interfaces",
        source="A2A 1.0 sections 5.2 and 8.3.1",
        behaviour="The card declares every binding and version that there is, each where it answers.",
        ways=ONCE,
    ),
    Requirement(
        id="face.bindings",
        source="docs/how-to/register-an-agent.md",
        behaviour="A face speaks every binding and generation that the broker does.",
        ways=ONCE,
    ),
    Requirement(
        id="face.list",
        source="A2A 1.0 section 3.1.4",
        behaviour="A face lists the tasks of its own agent.",
        ways=ONCE,
    ),
    Requirement(
        id="guard.directive",
        source="docs/reference/extension.md section 6",
        behaviour="A directive that would loop or go too far gives the task back, with the reason.",
        ways=ONCE,
    ),
)
