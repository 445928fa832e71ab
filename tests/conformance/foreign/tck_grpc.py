"""Loaded into the kit for 0.3 (``-p tck_grpc``), whose client reads an address of gRPC as a URL.

An address of gRPC is a host and a port; here it gets the scheme that this client wants.
"""

import pytest
from tck.transport import grpc_client

_parse = grpc_client.urlparse


@pytest.hookimpl(tryfirst=True)
def pytest_configure():
    grpc_client.urlparse = lambda address: _parse(address if "://" in address else f"grpc://{address}")
