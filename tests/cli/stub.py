"""A small HTTP server with canned answers: what a broker would say, without one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, str, bytes]


class Stub:
    """Answers by (method, path). ``seen`` has each request as (method, path, headers, body)."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Answer | Callable[[BaseHTTPRequestHandler], None]] = {}
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_request(self, code: object = "-", size: object = "-") -> None:
                pass

            def do_GET(self) -> None:
                stub.handle(self)

            def do_POST(self) -> None:
                stub.handle(self)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        self.seen.append((request.command, request.path, dict(request.headers), body))
        answer = self.answers.get((request.command, request.path.partition("?")[0]))
        if callable(answer):
            answer(request)
            return
        status, kind, content = answer or problem(404, "not_found", "Nothing is here.")
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    def json(self, method: str, path: str, answer: object, status: int = 200) -> None:
        self.answers[method, path] = (status, "application/json", json.dumps(answer).encode())

    def stream(self, *results: object, end: str = "") -> None:
        """``POST /`` answers with these results as server-sent events, then closes."""

        def write(request: BaseHTTPRequestHandler) -> None:
            request.send_response(200)
            request.send_header("Content-Type", "text/event-stream")
            request.send_header("Connection", "close")
            request.end_headers()
            request.wfile.write(b": hello\n\n")
            for result in results:
                event = {"jsonrpc": "2.0", "id": 1} | (
                    {"result": result} if "code" not in str(result) else {"error": result}
                )
                request.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            request.wfile.write(end.encode())
            request.close_connection = True

        self.answers["POST", "/"] = write

    def body(self, path: str) -> dict[str, Any]:
        """The JSON body of the last request to ``path``."""
        return json.loads(next(body for _, seen, _, body in reversed(self.seen) if seen == path))

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def problem(status: int, code: str, detail: str, **more: object) -> Answer:
    body = {
        "type": f"urn:a2a-handoff:error:{code}",
        "title": code,
        "status": status,
        "detail": detail,
        "code": code,
    }
    return status, "application/problem+json", json.dumps(body | more).encode()
