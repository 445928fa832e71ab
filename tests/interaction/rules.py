"""What A2A 1.0.1 demands of a server, sentence by sentence, in our own words, and which tests show it.

A ``Rule`` names sentences (``sentences``), the ways in on which it holds, the requirements that show it there
(``requirements``), each on every one of those ways, and tests elsewhere that show the rest of it. A way of 1.0
that is not among its ways has a reason, in ``but`` or in the gaps of its requirements. What is no duty of this
server is ``Out``, with the reason. ``test_rules`` fails if a sentence is in neither, or a test is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.interaction.requirements import ONCE, REQUIREMENTS

#: The ways in of 1.0, and those with the older generations.
NOW = ("jsonrpc-1.0", "http-1.0", "grpc-1.0", "face")
LATER = ("jsonrpc-1.0", "jsonrpc-0.3", "http-1.0", "http-0.3", "grpc-1.0", "grpc-0.3", "face")
EVERY = (*LATER, "jsonrpc-first", "http-first-bare", "http-first-envelope")
LISTS = ("jsonrpc-1.0", "jsonrpc-0.3", "http-1.0", "http-0.3", "grpc-1.0", "face")
JSON_RPC = ("jsonrpc-1.0", "face")
HTTP = ("http-1.0",)
GRPC = ("grpc-1.0",)

_SAID = "wire/test_tasks.py::test_what_an_agent_says_names_its_task_and_its_context_whatever_it_named_itself"
_PRESENCE = (
    "wire/test_signatures.py::"
    "test_required_fields_stay_optional_ones_stay_if_they_were_set_and_other_defaults_go"
)

#: Chapters that are about one binding, and its ways in.
BINDINGS: Mapping[str, tuple[str, ...]] = {"9": JSON_RPC, "10": GRPC, "11": HTTP}

#: Why something is no duty of this server.
CLIENT = "a duty of clients"
AUTHOR = "a duty of those who write bindings, extensions or SDKs"
OPERATOR = "a duty of those who run it"
AGENT = "a duty of the agent behind the broker, whose task it is"
NOT_OFFERED = "about what the broker does not do"
SAYS_MAY = "says what may be, or explains another sentence"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Something that a server must do."""

    at: str
    """The sentences, by their addresses."""
    rule: str
    shown: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    """``folder/test_file.py::test_name`` below ``tests``."""
    ways: tuple[str, ...] = NOW
    but: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class Out:
    """Sentences that demand nothing of this server."""

    at: str
    why: str
    because: str


RULES = (
    # --- 3: operations -----------------------------------------------------------------------------
    Rule(
        at="3.1.1#1",
        rule="A message is answered with a task, and the task goes on.",
        shown=("send.completes", "send.immediately"),
        ways=LATER,
    ),
    Rule(
        at="3.1.2#1 3.1.2#2 3.1.2#4",
        rule="A stream is the task, then what happens to it.",
        shown=("stream.order",),
        ways=EVERY,
    ),
    Rule(
        at="3.1.2#5 3.1.6#1",
        rule="A stream is over when the task is, however that ends.",
        shown=("stream.ends", "subscribe.ends"),
        ways=EVERY,
    ),
    Rule(
        at="3.1.2#6",
        rule="Progress and parts of the result are told when they come.",
        shown=("stream.started", "stream.order"),
        tests=("interaction/test_handoffs.py::test_streamed_chunks_reach_the_caller_as_they_come",),
        ways=EVERY,
    ),
    Rule(
        at="3.1.4#1",
        rule="A listing leaves artifacts out unless they are asked for.",
        shown=("list.artifacts",),
        ways=LISTS,
    ),
    Rule(
        at="3.1.4#2 3.1.4#3",
        rule="A page has its token always; that of the last page is empty.",
        shown=("list.token", "list.pages"),
        ways=LISTS,
    ),
    Rule(
        at="3.1.4#4 3.1.4#6 13.1#3 13.1#4 13.1#5",
        rule="A listing has what its caller may see, by a cursor, whatever it filters by.",
        shown=("who.list", "list.pages"),
        tests=("auth/test_walls.py::test_a_cursor_of_another_tenant_leads_to_nothing",),
        ways=LISTS,
    ),
    Rule(
        at="3.1.4#5 3.1.4#7",
        rule="What changed last is listed first.",
        shown=("list.newest", "list.updated"),
        ways=LISTS,
    ),
    Rule(
        at="3.1.6#2",
        rule="Who joins is told the task as it is, first.",
        shown=("subscribe.ends", "subscribe.catch_up"),
        ways=EVERY,
    ),
    Rule(at="3.1.7#1 3.1.8#1", rule="A webhook is set, shown and called.", shown=("push.set",), ways=EVERY),
    Rule(
        at="3.1.7#2",
        rule="A webhook stays until it is removed or the task is over.",
        shown=("push.set", "push.delete"),
        tests=(
            "push/test_restart.py::test_what_was_committed_and_not_told_before_the_kill_is_told_after_it",
            "push/test_delivery.py::test_a_webhook_that_is_set_after_the_end_hears_the_end",
        ),
        ways=LATER,
    ),
    Rule(
        at="3.1.8#2",
        rule="A webhook that is not there, or not the caller's, is not found.",
        shown=("push.unknown", "who.stranger"),
        ways=EVERY,
    ),
    Rule(at="3.1.9#1", rule="All webhooks of a task are listed.", shown=("push.several",), ways=LATER),
    Rule(
        at="3.1.10#1",
        rule="A webhook that was removed hears nothing more.",
        shown=("push.delete",),
        tests=("push/test_delivery.py::test_a_webhook_that_was_removed_is_told_nothing_more",),
        ways=LATER,
    ),
    Rule(
        at="3.1.10#2",
        rule="Removing a webhook again changes nothing.",
        shown=("push.delete",),
        ways=LATER,
    ),
    Rule(
        at="3.2.2#1 proto/SendMessageConfiguration#2",
        rule="Who waits is answered when the task ends, asks, or wants a login.",
        shown=("send.completes", "send.failed", "ask.reply", "ask.auth"),
        ways=EVERY,
    ),
    Rule(
        at="3.2.2#2",
        rule="The answer has all that the task has.",
        shown=("send.completes",),
        tests=(
            "cases/test_lifecycle.py::test_c049_a_blocking_send_returns_with_everything_that_is_also_stored",
        ),
        ways=EVERY,
    ),
    Rule(
        at="3.2.2#3",
        rule="Who does not wait is answered as soon as there is a task.",
        shown=("send.immediately",),
        ways=LATER,
    ),
    Rule(
        at="3.3.2#1 3.3.2#7 3.3.2#8 3.3.2#9 3.3.2#10 3.3.2#11 3.3.2#15",
        rule="An error has a code, words, and typed details, each as its binding writes them.",
        shown=("errors.whole",),
        tests=("wire/test_faults.py::test_every_code_has_details_that_parse_as_google_rpc",),
        ways=LATER,
    ),
    Rule(
        at="3.3.2#2 7.4#1 13.1#2 13.3#2 14.1.1#5",
        rule="Every call shows who makes it, as the card demands; one that does not is refused.",
        shown=("who.nobody",),
        tests=(
            "auth/test_doors.py::test_a_bad_token_is_told_to_be_one",
            "auth/test_doors.py::test_the_public_card_says_how_to_get_in_and_names_no_agent",
        ),
        ways=EVERY,
    ),
    Rule(at="3.3.2#3", rule="What a caller may not do is denied.", shown=("who.scope",), ways=EVERY),
    Rule(
        at="3.3.2#4 13.1#1 13.1#6 13.1#7 13.1#8",
        rule="To a stranger a task is like one that never was, in every operation.",
        shown=("who.stranger",),
        tests=("auth/test_walls.py::test_c065_a_strangers_task_is_like_one_that_never_was",),
        ways=EVERY,
    ),
    Rule(
        at="3.3.2#5 13.4#2 14.1.1#2",
        rule="Everything that is sent is checked first; what is wrong is refused, and nothing is done.",
        shown=("message.required", "context.faults"),
        tests=(
            "fuzz/test_jsonrpc.py::test_a_spoilt_call_of_any_method_is_answered_in_its_protocol_or_does_its_work",
            "fuzz/test_http_json.py::test_a_spoilt_body_is_answered_in_the_binding_or_does_its_work",
            "rpc/test_server.py::test_every_fault_of_a_request_is_named_by_its_field",
        ),
        ways=LATER,
    ),
    Rule(
        at="3.3.2#6",
        rule="What is not there is not found.",
        shown=("get.unknown", "who.stranger"),
        ways=EVERY,
    ),
    Rule(
        at="3.3.4#1 3.3.4#4 13.3#4",
        rule="An extended card that is not declared is an unsupported operation.",
        shown=("card.extended",),
        ways=LATER,
    ),
    Rule(
        at="3.3.4#6 4.6.3#2 4.6.3#3",
        rule="An extension that is demanded is demanded by its whole name; no older one will do.",
        shown=("extension.demanded",),
        tests=(
            "conformance/test_extensions.py::test_the_face_of_an_agent_that_demands_an_extension_demands_it",
        ),
        ways=("face", "grpc-1.0"),
        but=dict.fromkeys(("jsonrpc-1.0", "http-1.0"), "the broker's own card demands no extension"),
    ),
    Rule(
        at="3.4.1#1",
        rule="A context that the broker made is in the answer.",
        shown=("context.made",),
        ways=EVERY,
    ),
    Rule(
        at="3.4.1#2",
        rule="A context that a caller names is kept, or the message is refused.",
        shown=("context.given",),
        ways=EVERY,
    ),
    Rule(
        at="3.4.2#1 3.4.2#2",
        rule="Each new task has an id of its own, which is in the answer.",
        shown=("ids.unique",),
        ways=LATER,
    ),
    Rule(
        at="3.4.2#3 3.4.2#4",
        rule="A message to a task that there is not is refused.",
        shown=("reply.unknown",),
        ways=LATER,
    ),
    Rule(
        at="3.4.3#1",
        rule="A message that names only its task is of the context of the task.",
        shown=("context.inferred",),
        ways=EVERY,
    ),
    Rule(
        at="3.4.3#2",
        rule="A message that names a task and another context is refused.",
        shown=("context.other",),
        ways=LATER,
    ),
    Rule(
        at="3.5.2#1 3.5.2#2",
        rule="Events come in the order in which they happened.",
        shown=("stream.order", "subscribe.catch_up"),
        ways=EVERY,
    ),
    Rule(
        at="3.5.2#3 3.5.2#4",
        rule="All who follow a task are told the same, in the same order.",
        shown=("subscribe.together",),
        ways=EVERY,
    ),
    Rule(
        at="3.5.2#5",
        rule="Who hangs up takes nothing from the others.",
        shown=("subscribe.apart",),
        ways=EVERY,
    ),
    Rule(at="3.6#1", rule="A patch number does not count.", shown=("version.patch",), ways=LATER),
    Rule(
        at="3.6.2#1",
        rule="A call is read and answered as its version says.",
        shown=("send.completes", "version.unknown"),
        tests=(
            "wire/test_requests.py::test_1_0_and_0_3_ask_the_opposite_question",
            "wire/test_tasks.py::test_a_task_looks_as_each_generation_wants_it",
        ),
        ways=LATER,
    ),
    Rule(
        at="3.6.2#2",
        rule="A version that a way in does not speak is refused.",
        shown=("version.unknown",),
        ways=LATER,
    ),
    Rule(
        at="3.6.2#3",
        rule="No version is 0.3.",
        shown=("version.empty",),
        ways=("jsonrpc-1.0", "jsonrpc-0.3", "http-0.3", "grpc-0.3", "face"),
    ),
    # --- 4: data -----------------------------------------------------------------------------------
    Rule(
        at="4#1 5.1#1 5.1#2 5.1#3",
        rule="Every binding has the same operations, and shows the same of a task.",
        shown=("get.same", "send.completes", "cancel.ended", "subscribe.together", "push.several"),
        tests=(
            "wire/test_requests.py::test_every_method_of_the_sdk_is_served",
            "wire/test_protobuf.py::test_1_0_has_every_operation_and_0_3_all_but_listing",
        ),
        ways=LATER,
    ),
    Rule(
        at="4.3.3#1 13.2#1",
        rule="A webhook is called with the credentials that were set with it.",
        shown=("push.set",),
        tests=("push/test_delivery.py::test_token_and_credentials_are_sent_and_nothing_more_than_was_given",),
        ways=EVERY,
    ),
    Rule(
        at="4.3.3#4",
        rule="Every webhook of a task is called at least once.",
        shown=("push.message",),
        tests=("push/test_restart.py::test_a_kill_in_the_middle_repeats_at_most_what_was_on_its_way",),
        ways=EVERY,
    ),
    Rule(
        at="proto/SendMessageConfiguration#1 proto/GetTaskRequest#2",
        rule="There is no more of the history than was asked for.",
        shown=("get.history",),
        ways=EVERY,
    ),
    Rule(
        at="proto/Message#1",
        rule="What an agent says names its context.",
        shown=("context.said",),
        tests=(_SAID,),
        ways=LATER,
    ),
    Rule(
        at="proto/Artifact#1 proto/Artifact#2",
        rule="An artifact is one by its id, and has parts.",
        shown=("shapes.proto",),
        tests=(
            "wire/test_tasks.py::test_chunks_are_joined_by_id_however_they_interleave",
            "wire/test_tasks.py::test_a_whole_artifact_takes_the_place_of_what_was_there",
        ),
        ways=("jsonrpc-1.0", "http-1.0", "face"),
    ),
    # --- 5: bindings -------------------------------------------------------------------------------
    Rule(
        at="5.1#4 5.4#1",
        rule="An error is the same in every binding, under the code that it has there.",
        shown=("errors.whole", "get.unknown", "cancel.ended"),
        tests=("wire/test_faults.py::test_the_a2a_errors_are_those_of_the_sdk",),
        ways=LATER,
    ),
    Rule(
        at="5.1#5",
        rule="Every binding asks for the same credentials.",
        shown=("who.nobody", "who.scope"),
        ways=EVERY,
    ),
    Rule(
        at="5.2#1 8.3#1 8.3.1#1",
        rule="The card declares every binding and version, each where it answers.",
        shown=("card.interfaces",),
        ways=ONCE,
    ),
    Rule(
        at="5.5#1 5.5#2",
        rule="Members are in camel case, and words those of the proto.",
        shown=("shapes.proto",),
        ways=("jsonrpc-1.0", "http-1.0", "face"),
    ),
    Rule(
        at="5.6.1#1 5.6.1#2 5.6.1#3",
        rule="Times are written in UTC with a Z, and read with any offset.",
        shown=("shapes.proto",),
        tests=(
            "cases/test_unicode.py::test_c086_every_time_that_is_shown_is_utc_with_milliseconds",
            "cases/test_unicode.py::test_c086_what_changed_after_an_instant_is_listed_the_same_in_every_offset",
        ),
        ways=("jsonrpc-1.0", "http-1.0", "face"),
    ),
    Rule(
        at="5.7#2 5.7#3",
        rule="What is required is there and not empty, in what is sent and in what is taken.",
        shown=("message.required",),
        tests=("interaction/test_proto.py::test_every_answer_is_what_the_proto_says",),
        ways=LATER,
    ),
    # --- 7 and 8: who calls, and the card --------------------------------------------------------------
    Rule(
        at="7.6.1#1 7.6.1#2 7.6.1#3",
        rule="That a target wants a login is the state of the task, with the words that say which.",
        shown=("ask.auth",),
        ways=EVERY,
    ),
    Rule(
        at="8.1#1 14.3#1",
        rule="There is a card, where cards are looked for.",
        shown=("card.paths",),
        ways=ONCE,
    ),
    Rule(
        at="8.4.1#1 8.4.1#2 8.4.1#3 8.4.1#4 8.4.1#5 8.4.1#6 8.4.1#7 8.4.1#8",
        rule="What is signed of a card is its canonical form, without its signatures.",
        tests=(
            "wire/test_signatures.py::test_the_canonical_form_is_that_of_rfc_8785",
            _PRESENCE,
            "wire/test_signatures.py::test_the_signatures_are_no_part_of_what_they_sign",
        ),
        ways=ONCE,
    ),
    Rule(
        at="8.4.1#9 8.4.1#10 8.4.1#11 8.4.1#12 8.4.1#13",
        rule="The example of the specification has the bytes that it prints.",
        tests=(
            "wire/test_signatures.py::test_the_example_of_the_specification_has_the_bytes_that_it_prints",
        ),
        ways=ONCE,
    ),
    Rule(
        at="8.4.2#1 8.4.2#2 8.4.2#3 8.4.2#4",
        rule="A signature of ours says its algorithm and its key.",
        tests=(
            "rest/test_signed_cards.py::test_the_brokers_cards_are_signed_and_the_sdk_verifies_them",
            "wire/test_signatures.py::test_what_is_signed_says_how_and_with_which_key",
        ),
        ways=ONCE,
    ),
    # --- 9, 10, 11: what is of one binding ----------------------------------------------------------
    Rule(
        at="9.2#1 9.2#2",
        rule="JSON-RPC: version and extensions are read from headers.",
        shown=("version.unknown",),
        tests=("conformance/test_extensions.py::test_our_extension_is_activated_by_the_header_and_echoed",),
        ways=JSON_RPC,
    ),
    Rule(
        at="9.3#1",
        rule="JSON-RPC: what is no request of JSON-RPC 2.0 is refused as that says.",
        tests=(
            "fuzz/test_jsonrpc.py::test_any_bytes_at_all_get_an_answer_of_json_rpc",
            "cases/test_protocol.py::test_c001_an_id_that_is_no_scalar_is_refused_under_null_and_nothing_is_done",
            "cases/test_protocol.py::test_c002_a_batch_is_refused_whole_with_one_error_and_no_side_effect",
        ),
        ways=ONCE,
    ),
    Rule(
        at="9.5#1",
        rule="JSON-RPC: the data of an error is typed details.",
        shown=("errors.whole",),
        tests=("wire/test_faults.py::test_every_code_has_a_jsonrpc_shape_in_every_generation",),
        ways=JSON_RPC,
    ),
    Rule(
        at="10.2#1 10.2#2 10.2#3",
        rule="gRPC: version, extensions and trace are read from metadata.",
        shown=("version.unknown", "send.trace"),
        tests=("rpc/test_server.py::test_the_extension_that_is_used_comes_back_in_the_metadata",),
        ways=GRPC,
    ),
    Rule(
        at="10.6#1 10.6#2 10.6#3 10.6#4",
        rule="gRPC: an error of A2A has an ErrorInfo with its reason and the domain of A2A.",
        shown=("errors.whole",),
        ways=GRPC,
    ),
    Rule(
        at="11.2#1 11.2#2",
        rule="HTTP+JSON: version and extensions are read from headers.",
        shown=("version.unknown",),
        tests=("conformance/test_extensions.py::test_our_extension_is_activated_by_the_header_and_echoed",),
        ways=HTTP,
    ),
    Rule(
        at="11.5#1 11.5#2 11.5#4",
        rule="HTTP+JSON: what a body would say is read from path and query, in camel case, decoded.",
        shown=("get.history", "list.filters", "list.pages"),
        tests=("wire/test_requests.py::test_query_parameters_are_params",),
        ways=HTTP,
    ),
    Rule(
        at="11.6#1 11.6#2 11.6#3 11.6#4 11.6#5",
        rule="HTTP+JSON: an error has typed details, one of A2A an ErrorInfo with reason and domain.",
        shown=("errors.whole",),
        tests=("wire/test_faults.py::test_every_code_has_an_http_json_shape",),
        ways=HTTP,
    ),
    # --- 13 and 14: security, and what is registered ----------------------------------------------------
    Rule(
        at="13.3#1 13.3#3 14.3#2",
        rule="The extended card is for callers who are known, and has what each may see.",
        shown=("card.extended", "who.nobody"),
        tests=("auth/test_doors.py::test_the_extended_card_has_who_is_there_for_the_caller",),
        ways=LATER,
    ),
    Rule(
        at="13.4#3",
        rule="Tokens and credentials are told to nobody.",
        tests=(
            "auth/test_clients.py::test_a_secret_is_never_shown",
            "cases/test_webhooks.py::test_c052_credentials_are_sent_as_given_and_shown_to_nobody_else",
            "callbacks/test_callbacks.py::test_the_token_is_nowhere_to_be_read",
        ),
        ways=ONCE,
    ),
    Rule(
        at="13.4#4",
        rule="Logs have no secrets.",
        tests=(
            "telemetry/test_logs.py::test_an_exception_is_shown_without_its_secrets",
            "telemetry/test_log_export.py::test_a_line_arrives_with_its_trace_and_without_its_secrets",
        ),
        ways=ONCE,
    ),
    Rule(
        at="14.1.1#1",
        rule="JSON is UTF-8; what is not is refused.",
        tests=(
            "conformance/test_known_faults.py::test_a_body_that_is_not_utf_8_is_a_parse_error",
            "cases/test_unicode.py::test_c083_a_text_is_the_same_on_every_path_and_after_a_restart",
        ),
        ways=ONCE,
    ),
    Rule(
        at="14.1.1#3",
        rule="What a caller writes cannot break out of a line, a stream or a name.",
        tests=(
            "cases/test_unicode.py::test_c087_an_id_that_could_break_a_line_is_refused_and_not_repeated",
            "wire/test_tasks.py::test_a_server_sent_event_is_one_line_whatever_the_json_has_in_it",
        ),
        ways=ONCE,
    ),
    Rule(
        at="14.2.1#1",
        rule="A version that is not of the form of one is refused.",
        shown=("version.unknown",),
        ways=LATER,
    ),
)

OUT = (
    Out(at="3.1.2#3", why=NOT_OFFERED, because="it answers with a task always, so that it can be looked up"),
    Out(
        at="3.1.11#1 3.6.1#1 3.7#2 4.3.3#2 4.3.3#3 13.2#2 13.2#3",
        why=CLIENT,
        because="they are about who calls, or who is called back",
    ),
    Out(
        at=(
            "proto/AgentInterface#2 proto/AgentExtension#1 proto/TaskPushNotificationConfig#1 "
            "proto/SendMessageRequest#1 proto/GetTaskRequest#1 "
            "proto/ListTasksRequest#1 proto/CancelTaskRequest#1 "
            "proto/GetTaskPushNotificationConfigRequest#1 proto/DeleteTaskPushNotificationConfigRequest#1 "
            "proto/SubscribeToTaskRequest#1 proto/ListTaskPushNotificationConfigsRequest#1 "
            "proto/GetExtendedAgentCardRequest#1"
        ),
        why=CLIENT,
        because="a tenant that a client should not name is refused: tests/auth/test_walls.py",
    ),
    Out(
        at="proto/ImplicitOAuthFlow#1 proto/ImplicitOAuthFlow#2 proto/PasswordOAuthFlow#1 proto/PasswordOAuthFlow#2",
        why=NOT_OFFERED,
        because="its card declares bearer tokens, and none of the OAuth flows that A2A has given up",
    ),
    Out(at="3.2.6#1 5.4#2 5.8#1 13.4#6 13.4#7", why=AUTHOR, because="it has the three bindings of A2A"),
    Out(
        at="3.3.2#12 3.3.2#13 3.3.2#14",
        why=SAYS_MAY,
        because="they list what details of errors may be good for",
    ),
    Out(at="3.3.4#2", why=NOT_OFFERED, because="its card declares push notifications always"),
    Out(at="3.3.4#3", why=NOT_OFFERED, because="its card declares streaming always"),
    Out(
        at="3.3.4#5 13.3#5",
        why=NOT_OFFERED,
        because="an extended card that is declared is there for every caller",
    ),
    Out(at="3.6.3#1", why=AUTHOR, because="it is a server"),
    Out(at="3.7#1", why=SAYS_MAY, because="it says what nobody may rely on; results are artifacts here"),
    Out(at="4.6.3#1", why=AUTHOR, because="the extension has had one version"),
    Out(at="5.7#1", why=SAYS_MAY, because="it explains the marks of the proto"),
    Out(
        at="7.1#1 13.4#1 proto/AgentInterface#1",
        why=OPERATOR,
        because="a proxy in front of it has the certificate",
    ),
    Out(at="7.6.1#4", why=AGENT, because="it passes on what is asked and keeps no credentials for it"),
    Out(
        at="8.3.2#1 8.3.2#2 8.3.2#3 8.3.2#4 8.3.2#5",
        why=CLIENT,
        because="as a client of agents it does so: tests/wire/test_cards.py and tests/client",
    ),
    Out(
        at="8.4.3#1 8.4.3#2 8.4.3#3 8.4.3#4 8.4.3#5 8.4.3#6 8.4.3#7 8.4.3#8",
        why=CLIENT,
        because="as a reader of cards it does so: tests/wire/test_signatures.py, tests/rest/test_signed_cards.py",
    ),
    Out(at="11.5#3", why=CLIENT, because="no operation of HTTP+JSON without a body has nested parameters"),
    Out(at="13.4#5 14.1.1#6", why=OPERATOR, because="which laws hold is known where it runs"),
    Out(at="14.1.1#4", why=NOT_OFFERED, because="it fetches no file; what it calls goes through one policy"),
)

_GAPS = {one.id: one.gaps for one in REQUIREMENTS}
_PROVES = re.compile(r"^@proves\(([^)]*)\)\n(?:@.*\n)*def (test_\w+)", re.MULTILINE)


def sections(at: str) -> list[str]:
    """The sections of addresses, each once."""
    return list(dict.fromkeys(one.partition("#")[0] for one in at.split()))


def chapters_of(at: str) -> list[str]:
    """The chapter of each address, as in ``sentences.CHAPTERS``."""
    return [re.split(r"[./#]", one)[0] for one in at.split()]


def exceptions(rule: Rule) -> dict[str, str]:
    """The ways of 1.0 on which a rule does not hold, and why. Empty reasons are faults of this module."""
    if rule.ways == ONCE:
        return {}
    chapters = chapters_of(rule.at)
    wanted = dict.fromkeys(way for chapter in chapters for way in BINDINGS.get(chapter, NOW))
    reasons = {way: why for one in rule.shown for way, why in _GAPS[one].items()} | dict(rule.but)
    return {way: reasons.get(way, "") for way in wanted if way not in rule.ways}


def proofs(requirement: str) -> list[str]:
    """The tests of this folder that prove a requirement, as a rule names tests."""
    return [name for one, name in _proofs() if one == requirement]


@cache
def _proofs() -> tuple[tuple[str, str], ...]:
    return tuple(_read())


def _read() -> Iterator[tuple[str, str]]:
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for ids, name in _PROVES.findall(path.read_text(encoding="utf-8")):
            for one in re.findall(r'"([^"]+)"', ids):
                yield one, f"interaction/{path.name}::{name}"
