"""Loaded into the compatibility kit's own pytest (``-p tck_ids``): each message gets an id of its own.

The kit uses one id for messages of different content. A broker takes the id for what identifies a message (A2A 1.0
sections 3.3.1 and 4.1.4) and refuses the second one. What the id begins with stays, for that tells the agent what to do.
"""

import itertools

import pytest
from tck.transport.grpc_client import GrpcClient
from tck.transport.http_json_client import HttpJsonClient
from tck.transport.jsonrpc_client import JsonRpcClient

_numbers = itertools.count(1)


def _own_id(method):
    def call(self, message, **more):
        return method(
            self, message={**message, "messageId": f"{message['messageId']}-{next(_numbers)}"}, **more
        )

    return call


@pytest.hookimpl(tryfirst=True)
def pytest_configure():
    for client in (GrpcClient, HttpJsonClient, JsonRpcClient):
        for name in ("send_message", "send_streaming_message"):
            setattr(client, name, _own_id(getattr(client, name)))
