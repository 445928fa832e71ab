"""A real broker process that serves gRPC: under load, stopped, killed."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from a2a.types import a2a_pb2 as v10
from a2a.types import a2a_pb2_grpc as v10_grpc
from google.protobuf import json_format

from tests.support.agents import Agent, card, completes
from tests.support.puppet import puppet
from tests.support.running import WAIT_S, handoff_context, kept_port, running
from tests.support.served import served


def message(message_id: str) -> v10.SendMessageRequest:
    body = {
        "message": {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": "go"}]},
        "metadata": {"handoff_context": handoff_context(target_agent="worker")},
    }
    return json_format.ParseDict(body, v10.SendMessageRequest())


def test_many_calls_at_once_are_all_answered(tmp_path: Path) -> None:
    port = kept_port()
    with running(Agent(completes)) as url, served(tmp_path, grpc_port=port) as b:
        b.register("worker", card=card(url))
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, ThreadPoolExecutor(16) as threads:
            stub = v10_grpc.A2AServiceStub(channel)
            numbers = range(64)
            answers = list(threads.map(lambda n: stub.SendMessage(message(f"m-{n}"), timeout=30), numbers))
        assert {answer.task.status.state for answer in answers} == {v10.TASK_STATE_COMPLETED}
        assert len({answer.task.id for answer in answers}) == len(numbers)
        assert "Traceback" not in b.words


def test_a_broker_that_is_stopped_ends_its_streams_and_goes_on_after_a_start(tmp_path: Path) -> None:
    port = kept_port()
    with puppet() as agent, served(tmp_path, grpc_port=port) as b:
        b.register("worker", card=card(agent.url))
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            events = v10_grpc.A2AServiceStub(channel).SendStreamingMessage(message("m"), timeout=30)
            task_id = next(events).task.id
            agent.next("SendMessage")
            began = time.monotonic()
            assert b.stop() == 0
            assert time.monotonic() - began < WAIT_S
            list(events)
        assert "Traceback" not in b.words
        b.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            task = v10_grpc.A2AServiceStub(channel).GetTask(v10.GetTaskRequest(id=task_id), timeout=30)
            assert task.status.state in (v10.TASK_STATE_SUBMITTED, v10.TASK_STATE_WORKING)


def test_a_broker_that_is_killed_has_every_task_that_it_took(tmp_path: Path) -> None:
    port = kept_port()
    with puppet() as agent, served(tmp_path, grpc_port=port) as b:
        b.register("worker", card=card(agent.url))
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = v10_grpc.A2AServiceStub(channel)
            events = stub.SendStreamingMessage(message("m"), timeout=30)
            task_id = next(events).task.id
            b.kill()
            with pytest.raises(grpc.RpcError) as caught:
                list(events)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        b.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = v10_grpc.A2AServiceStub(channel)
            assert stub.GetTask(v10.GetTaskRequest(id=task_id), timeout=30).id == task_id
