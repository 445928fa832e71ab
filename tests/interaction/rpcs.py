"""A2A over gRPC, by the stubs that come with a2a-sdk.

Not here: what is written in the messages (``dialects``), which over gRPC is that of HTTP+JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
from a2a.compat.v0_3 import a2a_v0_3_pb2, a2a_v0_3_pb2_grpc
from a2a.types import a2a_pb2, a2a_pb2_grpc
from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2

from tests.interaction.dialects import METHODS
from tests.interaction.seen import Refused, written
from tests.interaction.wires import Wire

_NAMES_03: Mapping[str, str] = {
    "subscribe": "TaskSubscription", "list_push": "ListTaskPushNotificationConfig", "card": "GetAgentCard",
}  # fmt: skip


class Grpc(Wire):
    """gRPC of one generation."""

    def __init__(self, broker: Any, name: str, dialect: Any) -> None:
        super().__init__(broker, name, dialect)
        self.codes = "grpc"

    def call(
        self, operation: str, params: dict[str, Any], headers: Mapping[str, str], facts: str
    ) -> dict[str, Any]:
        (answer,) = self._answers(operation, params, headers, facts)
        return answer

    def follow(
        self, operation: str, params: dict[str, Any], headers: Mapping[str, str], facts: str
    ) -> Iterator[dict[str, Any]]:
        yield from self._answers(operation, params, headers, facts)

    def _answers(
        self, operation: str, params: dict[str, Any], headers: Mapping[str, str], facts: str
    ) -> Iterator[dict[str, Any]]:
        service, stub = self._service()
        name = self._method(operation)
        request = service.DESCRIPTOR.services_by_name["A2AService"].methods_by_name[name].input_type
        message = getattr(service, request.name)()
        json_format.Parse(written(self._named(operation, params), facts), message)
        metadata = [(key.lower(), value) for key, value in {**self.named, **headers}.items()]
        with grpc.insecure_channel(f"127.0.0.1:{self.broker.app.grpc_port}") as channel:
            try:
                answer = getattr(stub(channel), name)(message, metadata=metadata, timeout=30)
                for one in answer if operation in ("stream", "subscribe") else (answer,):
                    yield json_format.MessageToDict(one, always_print_fields_with_no_presence=True)
            except grpc.RpcError as error:
                raise refusal(error) from None

    def _service(self) -> tuple[Any, Callable[[grpc.Channel], Any]]:
        return a2a_pb2, a2a_pb2_grpc.A2AServiceStub

    def _method(self, operation: str) -> str:
        return METHODS[operation]

    def _named(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        return params


class Grpc03(Grpc):
    """gRPC of 0.3, which names what it is about by paths."""

    def _service(self) -> tuple[Any, Callable[[grpc.Channel], Any]]:
        return a2a_v0_3_pb2, a2a_v0_3_pb2_grpc.A2AServiceStub

    def _method(self, operation: str) -> str:
        return _NAMES_03.get(operation, METHODS[operation])

    def _named(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        if operation in ("send", "stream"):
            return {("message" if name == "request" else name): value for name, value in params.items()}
        if operation == "card":
            return {}
        task_id = params.pop("taskId", "")
        if operation == "list_push":
            return {"parent": f"tasks/{task_id}"}
        if operation in ("get_push", "delete_push"):
            return {"name": f"tasks/{task_id}/pushNotificationConfigs/{params.get('id', '')}"}
        if operation == "set_push":
            return params
        return {"name": f"tasks/{params.pop('id')}", **params}


def refusal(error: Any) -> Refused:
    """What ``google.rpc.Status`` in the trailers says."""
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    assert (status.code, status.message) == (error.code().value[0], error.details())
    info, faults = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(faults)
    violations = {fault.field: fault.description for fault in faults.field_violations}
    details = [json_format.MessageToDict(detail) for detail in status.details]
    return Refused(info.reason, status.code, status.message, violations, dict(info.metadata), details)
