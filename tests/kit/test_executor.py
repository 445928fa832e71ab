"""An executor of a2a-sdk under ``HandoffExecutor``, driven by the SDK's own request handler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    CancelTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
    TaskState,
)
from google.protobuf.json_format import MessageToDict

from a2a_handoff.kit import EXTENSION_URI, Declined, HandoffReceiver, handoff
from a2a_handoff.kit.executor import HandoffExecutor, agent_message, child_end_of, direct, incoming_of

CONTEXT: dict[str, Any] = {
    "correlation_id": "c1",
    "user_intent": "wants an invoice",
    "conversation_summary": "asked",
    "key_facts": {"invoice": 4711},
}

Work = Callable[[RequestContext, EventQueue, TaskUpdater], Awaitable[None]]


class Agent(AgentExecutor):
    """Publishes its task, then does ``work``; counts its runs."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.seen: list[tuple[str, str]] = []
        self.canceled: list[str] = []

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.seen.append((context.task_id or "", context.get_user_input()))
        updater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        if context.current_task is None:
            task = Task(id=context.task_id, context_id=context.context_id)
            task.status.state = TaskState.TASK_STATE_SUBMITTED
            await event_queue.enqueue_event(task)
        await self.work(context, event_queue, updater)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.canceled.append(context.task_id or "")
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


class Server:
    """The SDK's request handler over a wrapped agent, without HTTP."""

    def __init__(self, agent: AgentExecutor, receiver: HandoffReceiver | None = None) -> None:
        card = AgentCard(
            name="a",
            description="a",
            version="1",
            supported_interfaces=[
                AgentInterface(url="http://a/", protocol_binding="JSONRPC", protocol_version="1.0")
            ],
            capabilities=AgentCapabilities(streaming=True),
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain"],
            skills=[AgentSkill(id="s", name="s", description="s", tags=["s"])],
        )
        executor = HandoffExecutor(agent, receiver or HandoffReceiver("a"))
        self.handler = DefaultRequestHandler(
            agent_executor=executor, task_store=InMemoryTaskStore(), agent_card=card
        )

    async def send(self, request: SendMessageRequest) -> dict[str, Any]:
        return MessageToDict(await self.handler.on_message_send(request, ServerCallContext()))

    async def stream(self, request: SendMessageRequest) -> AsyncGenerator[dict[str, Any], None]:
        async for event in self.handler.on_message_send_stream(request, ServerCallContext()):
            yield MessageToDict(event)


def message(
    metadata: dict[str, Any] | None = None, *, text: str = "do it", task_id: str = ""
) -> SendMessageRequest:
    body = Message(message_id="m1", role=Role.ROLE_USER, task_id=task_id, parts=[Part(text=text)])
    if metadata is not None:
        body.metadata.update({EXTENSION_URI: metadata})
    return SendMessageRequest(message=body, configuration=SendMessageConfiguration())


def task(offer_id: str = "o1") -> SendMessageRequest:
    return message({**CONTEXT, "handoff_id": "h1", "offer_id": offer_id, "attempt": 1})


def offer(offer_id: str = "o1") -> SendMessageRequest:
    return message(
        {"offer": {**CONTEXT, "handoff_id": "h1", "offer_id": offer_id, "attempt": 1, "ack_wait_s": 5}}
    )


def said(answer: dict[str, Any]) -> dict[str, Any]:
    return answer.get("metadata", {}).get(EXTENSION_URI, {})


async def chunks(_: RequestContext, __: EventQueue, updater: TaskUpdater) -> None:
    await updater.add_artifact([Part(text="one ")], artifact_id="x", append=False)
    await updater.add_artifact([Part(text="two")], artifact_id="x", append=True, last_chunk=True)
    await updater.complete(agent_message("done", task_id=updater.task_id, context_id=updater.context_id))


def check(body: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(body(), 10))


# --- offers --------------------------------------------------------------------------------------


def test_an_offer_is_answered_with_a_message_and_the_agent_does_not_run() -> None:
    async def body() -> None:
        agent = Agent(chunks)
        answer = await Server(agent).send(offer())
        assert answer["role"] == "ROLE_AGENT"
        assert answer["extensions"] == [EXTENSION_URI]
        assert said(answer)["ready"]["offer_id"] == "o1"
        assert said(answer)["ready"]["receipt"]["key_facts"] == {"invoice": 4711}
        assert agent.seen == []

    check(body)


def test_a_declined_offer_says_why() -> None:
    async def body() -> None:
        receiver = HandoffReceiver("a", decide=lambda _: Declined("on holiday"))
        answer = await Server(Agent(chunks), receiver).send(offer())
        assert said(answer) == {"declined": {"offer_id": "o1", "reason": "on holiday"}}
        assert answer["parts"][0]["text"] == "on holiday"

    check(body)


# --- the receipt ---------------------------------------------------------------------------------


def test_the_receipt_rides_on_the_first_message_of_a_task_that_was_not_offered() -> None:
    async def body() -> None:
        server = Server(Agent(chunks))
        answer = await server.send(task())
        assert said(answer["status"]["message"])["receipt"]["user_intent"] == "wants an invoice"
        assert answer["status"]["message"]["extensions"] == [EXTENSION_URI]

    check(body)


def test_a_receipt_given_with_ready_is_not_given_twice() -> None:
    async def body() -> None:
        server = Server(Agent(chunks))
        await server.send(offer())
        answer = await server.send(task())
        assert said(answer["status"]["message"]) == {}

    check(body)


def test_a_message_without_a_handoff_passes_untouched() -> None:
    async def body() -> None:
        agent = Agent(chunks)
        server = Server(agent)
        for _ in range(2):
            answer = await server.send(message())
            assert answer["status"]["state"] == "TASK_STATE_COMPLETED"
            assert said(answer["status"]["message"]) == {}
        assert len(agent.seen) == 2

    check(body)


# --- redelivery ----------------------------------------------------------------------------------


def test_a_redelivered_task_has_the_same_answer_under_its_own_task_id() -> None:
    async def body() -> None:
        agent = Agent(chunks)
        server = Server(agent)
        first, second = await server.send(task()), await server.send(task())
        assert len(agent.seen) == 1
        assert first["id"] != second["id"]
        assert second["status"]["message"]["taskId"] == second["id"]
        assert second["status"]["message"]["contextId"] == second["contextId"]
        assert first["artifacts"] == second["artifacts"]
        assert "".join(part["text"] for part in second["artifacts"][0]["parts"]) == "one two"

    check(body)


def test_a_redelivery_while_the_first_run_is_under_way_shares_it() -> None:
    async def body() -> None:
        go_on = asyncio.Event()

        async def slow(context: RequestContext, queue: EventQueue, updater: TaskUpdater) -> None:
            await updater.start_work()
            await go_on.wait()
            await chunks(context, queue, updater)

        agent = Agent(slow)
        server = Server(agent)
        async with aclosing(server.stream(task())) as first, aclosing(server.stream(task())) as second:
            heads = [await anext(first), await anext(first), await anext(second), await anext(second)]
            go_on.set()
            rest = [event async for event in first], [event async for event in second]
        assert len(agent.seen) == 1
        assert [head.get("status", {}).get("state") for head in heads] == [
            "TASK_STATE_SUBMITTED",
            "TASK_STATE_WORKING",
        ] * 2
        assert len(rest[0]) == len(rest[1]) == 3
        assert {event["taskId"] for event in rest[1]} == {heads[2]["id"]}

    check(body)


def test_a_client_that_hangs_up_does_not_end_the_run() -> None:
    async def body() -> None:
        go_on = asyncio.Event()

        async def slow(context: RequestContext, queue: EventQueue, updater: TaskUpdater) -> None:
            await go_on.wait()
            await chunks(context, queue, updater)

        agent = Agent(slow)
        server = Server(agent)
        async with aclosing(server.stream(task())) as first:
            await anext(first)
        go_on.set()
        answer = await server.send(task())
        assert answer["status"]["state"] == "TASK_STATE_COMPLETED"
        assert len(agent.seen) == 1

    check(body)


def test_the_failure_of_the_first_run_reaches_the_redelivery(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async def broken(_: RequestContext, __: EventQueue, updater: TaskUpdater) -> None:
            await updater.start_work()
            raise LookupError("no such invoice")

        agent = Agent(broken)
        server = Server(agent)
        for _ in range(2):
            with pytest.raises(LookupError):
                await server.send(task())
        assert len(agent.seen) == 1

    check(body)
    assert "no such invoice" in caplog.text


def test_an_answer_as_a_plain_message_is_shared_too() -> None:
    async def body() -> None:
        class Short(Agent):
            async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
                self.seen.append(("", ""))
                await event_queue.enqueue_event(agent_message("hello"))

        agent = Short(chunks)
        server = Server(agent)
        answers = [await server.send(task()), await server.send(task())]
        assert [answer["parts"][0]["text"] for answer in answers] == ["hello", "hello"]
        assert len(agent.seen) == 1

    check(body)


# --- follow-ups and cancel -----------------------------------------------------------------------


def test_a_reply_to_a_redelivered_task_reaches_the_agent_under_the_first_task_id() -> None:
    async def body() -> None:
        async def ask(context: RequestContext, _: EventQueue, updater: TaskUpdater) -> None:
            if context.current_task is None:
                await updater.requires_input(updater.new_agent_message([Part(text="which month?")]))
            else:
                assert context.current_task.id == context.task_id
                await updater.complete(updater.new_agent_message([Part(text=context.get_user_input())]))

        agent = Agent(ask)
        server = Server(agent)
        first, second = await server.send(task()), await server.send(task())
        assert second["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        answer = await server.send(message(text="March", task_id=second["id"]))
        assert answer["id"] == second["id"]
        assert answer["status"]["state"] == "TASK_STATE_COMPLETED"
        assert agent.seen == [(first["id"], "do it"), (first["id"], "March")]

    check(body)


def test_canceling_one_delivery_stops_the_run_for_all() -> None:
    async def body() -> None:
        stopped = asyncio.Event()

        async def endless(_: RequestContext, __: EventQueue, updater: TaskUpdater) -> None:
            await updater.start_work()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        agent = Agent(endless)
        server = Server(agent)
        async with aclosing(server.stream(task())) as first, aclosing(server.stream(task())) as second:
            ids = [(await anext(first))["id"], (await anext(second))["id"]]
            await anext(first)
            await anext(second)
            answer = await server.handler.on_cancel_task(CancelTaskRequest(id=ids[1]), ServerCallContext())
            assert answer is not None
            assert answer.status.state == TaskState.TASK_STATE_CANCELED
            assert [event["status"]["state"] async for event in first] == ["TASK_STATE_CANCELED"]
        await stopped.wait()
        assert agent.canceled == [ids[0]]

    check(body)


def test_canceling_a_task_that_was_delivered_once_stops_it() -> None:
    async def body() -> None:
        stopped = asyncio.Event()

        async def endless(_: RequestContext, __: EventQueue, updater: TaskUpdater) -> None:
            await updater.start_work()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        agent = Agent(endless)
        server = Server(agent)
        async with aclosing(server.stream(task())) as events:
            task_id = (await anext(events))["id"]
            await anext(events)
            answer = await server.handler.on_cancel_task(CancelTaskRequest(id=task_id), ServerCallContext())
        await stopped.wait()
        assert answer is not None
        assert answer.status.state == TaskState.TASK_STATE_CANCELED
        assert agent.canceled == [task_id]

    check(body)


def test_a_rescinded_offer_stops_its_run_and_a_late_task_of_it_is_refused() -> None:
    async def body() -> None:
        async def endless(_: RequestContext, __: EventQueue, updater: TaskUpdater) -> None:
            await updater.start_work()
            await asyncio.Event().wait()

        agent = Agent(endless)
        server = Server(agent)
        async with aclosing(server.stream(task())) as events:
            task_id = (await anext(events))["id"]
            await anext(events)
            await server.send(message({"rescinded": {"offer_id": "o1", "attempt": 1, "handoff_id": "h1"}}))
            assert [event["status"]["state"] async for event in events] == ["TASK_STATE_CANCELED"]
        assert agent.canceled == [task_id]
        assert said(await server.send(offer()))["declined"]["reason"] == "the offer is void"

        await server.send(message({"rescinded": {"offer_id": "o2"}}))
        answer = await server.send(task("o2"))
        assert answer["status"]["state"] == "TASK_STATE_REJECTED"
        assert len(agent.seen) == 1

    check(body)


def test_the_end_of_a_delegated_handoff_reaches_the_agent_as_the_next_word_of_its_task() -> None:
    async def body() -> None:
        async def ask(context: RequestContext, _: EventQueue, updater: TaskUpdater) -> None:
            end = child_end_of(context)
            if end is None:
                await updater.requires_input(updater.new_agent_message([Part(text="waiting")]))
            else:
                assert incoming_of(context) is None
                await updater.complete(
                    updater.new_agent_message([Part(text=f"{end.handoff_id} {end.state}")])
                )

        server = Server(Agent(ask))
        first = await server.send(task())
        end = {"child": {"handoff_id": "h2", "state": "completed", "reason": ""}}
        answer = await server.send(message(end, task_id=first["id"]))
        assert answer["status"]["message"]["parts"][0]["text"] == "h2 completed"

    check(body)


# --- handing on ----------------------------------------------------------------------------------


def test_an_executor_hands_on_with_the_status_that_ends_its_part() -> None:
    async def body() -> None:
        async def route(context: RequestContext, queue: EventQueue, _: TaskUpdater) -> None:
            held = incoming_of(context)
            assert held is not None
            payload = handoff(
                "billing_agent", base=held, summary="It is about money.", update={"urgent": True}
            )
            await direct(context, queue, "Handing on to billing.", payload)

        answer = await Server(Agent(route)).send(task())
        directive = said(answer["status"]["message"])["handoff"]
        assert directive["target_agent"] == "billing_agent"
        assert directive["key_facts"] == {"invoice": 4711, "urgent": True}
        assert answer["status"]["message"]["parts"][0]["text"] == "Handing on to billing."

    check(body)
