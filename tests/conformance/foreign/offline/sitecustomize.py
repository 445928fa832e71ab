"""Loaded by a broker that a compatibility kit runs against: names of example.com are loopback.

The kits name webhooks there, and a machine without a network cannot resolve them. Nothing listens.
"""

import socket

_real = socket.getaddrinfo


def getaddrinfo(host, *arguments, **named):
    example = isinstance(host, str) and (host == "example.com" or host.endswith(".example.com"))
    return _real("127.0.0.1" if example else host, *arguments, **named)


socket.getaddrinfo = getaddrinfo
