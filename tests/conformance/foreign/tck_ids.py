"""Loaded into the compatibility kit's own pytest (``-p tck_ids``), because two of its habits hide what it tests.

It uses one message id for messages of different content. A broker takes the id for what identifies the message (A2A
1.0 sections 3.3.1 and 4.1.4) and refuses the second one, so here each message gets an id of its own; what the id begins
with stays, for that tells the agent what to do. And it names a webhook at example.com, which a machine without a
network cannot resolve; here it is at loopback.
"""

import itertools

import pytest
from tck.transport.http_json_client import HttpJsonClient
from tck.transport.jsonrpc_client import JsonRpcClient

_numbers = itertools.count(1)


def _own_id(method):
    def call(self, message, **more):
        return method(
            self, message={**message, "messageId": f"{message['messageId']}-{next(_numbers)}"}, **more
        )

    return call


def _reachable(method):
    def call(self, task_id, config):
        return method(
            self,
            task_id,
            {**config, "url": config["url"].replace("https://example.com", "http://127.0.0.1:9")},
        )

    return call


def _clients():
    yield HttpJsonClient
    yield JsonRpcClient
    try:
        from tck.transport.grpc_client import GrpcClient
    except ImportError:
        return
    yield GrpcClient


@pytest.hookimpl(tryfirst=True)
def pytest_configure():
    for client in _clients():
        for name in ("send_message", "send_streaming_message"):
            setattr(client, name, _own_id(getattr(client, name)))
        name = "create_push_notification_config"
        setattr(client, name, _reachable(getattr(client, name)))
