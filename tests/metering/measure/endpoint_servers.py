"""Servers for endpoint tests: a real one that speaks KServe v2 over ONNX Runtime, a real one that
speaks chat completions over a small decoder, and one that sends whatever bytes a case wants."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

KINDS = {"INT64": np.int64, "FP32": np.float32}


@contextlib.contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[str]:
    """Run a server on a thread of its own; yields its address."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Json(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body in two packets would otherwise wait for each other's acknowledgement.
    disable_nagle_algorithm = True

    def log_message(self, *arguments: Any) -> None:
        pass

    def reply(self, value: Any, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))


class KserveServer(ThreadingHTTPServer):
    """One ONNX model under one name. ``change`` may alter an answer before it is sent."""

    daemon_threads = True

    def __init__(
        self, model: Path, name: str, change: Callable[[dict[str, Any]], Any] | None = None
    ) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(model), options)
        self.name, self.change, self.answered = name, change, 0
        super().__init__(("127.0.0.1", 0), _Kserve)


class _Kserve(_Json):
    server: KserveServer

    def do_GET(self) -> None:
        if self.path == "/v2":
            self.reply({"name": "test-server", "version": "1.2", "extensions": []})
        elif self.path == f"/v2/models/{self.server.name}":
            session = self.server.session
            ports = {"inputs": session.get_inputs(), "outputs": session.get_outputs()}
            kinds = {"tensor(int64)": "INT64", "tensor(float)": "FP32"}
            described = {
                side: [
                    {"name": port.name, "datatype": kinds[port.type], "shape": [-1, -1]}
                    for port in found
                ]
                for side, found in ports.items()
            }
            self.reply({"name": self.server.name, "platform": "onnxruntime_onnx", **described})
        else:
            self.reply({"error": "no such model"}, 404)

    def do_POST(self) -> None:
        asked = self.body()
        if self.path != f"/v2/models/{self.server.name}/infer":
            self.reply({"error": "no such model"}, 404)
            return
        feeds = {
            tensor["name"]: np.array(tensor["data"], KINDS[tensor["datatype"]]).reshape(
                tensor["shape"]
            )
            for tensor in asked["inputs"]
        }
        names = [tensor["name"] for tensor in asked["outputs"]]
        outputs = [
            {
                "name": name,
                "datatype": "FP32",
                "shape": list(value.shape),
                "data": value.ravel().tolist(),
            }
            for name, value in zip(names, self.server.session.run(names, feeds), strict=True)
        ]
        answer = {"id": asked["id"], "model_name": self.server.name, "outputs": outputs}
        self.server.answered += 1
        self.reply(self.server.change(answer) if self.server.change else answer)


class ChatServer(ThreadingHTTPServer):
    """Streams what ``generate(prompt text, limit)`` yields: (text of one token, stopped)."""

    daemon_threads = True

    def __init__(
        self,
        generate: Callable[[str, int], Iterator[tuple[str, bool]]],
        name: str,
        *,
        claim: Callable[[int], int] = lambda tokens: tokens,
    ) -> None:
        self.generate, self.name, self.claim = generate, name, claim
        super().__init__(("127.0.0.1", 0), _Chat)


class _Chat(_Json):
    server: ChatServer

    def do_GET(self) -> None:
        self.reply({"object": "list", "data": [{"id": self.server.name, "object": "model"}]})

    def do_POST(self) -> None:
        asked = self.body()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.event({"choices": [{"delta": {"role": "assistant"}, "finish_reason": None}]})
        tokens, finish = 0, "length"
        limit = asked["max_tokens"]
        for text, stopped in self.server.generate(asked["messages"][0]["content"], limit):
            tokens += 1
            if stopped:
                finish = "stop"
            else:
                self.event({"choices": [{"delta": {"content": text}, "finish_reason": None}]})
        self.event({"choices": [{"delta": {}, "finish_reason": finish}]})
        self.event({"choices": [], "usage": {"completion_tokens": self.server.claim(tokens)}})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def event(self, value: Any) -> None:
        self.chunk(f"data: {json.dumps(value)}\n\n".encode())

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


class RawServer(socketserver.ThreadingTCPServer):
    """Reads one request head, then hands the socket to ``act``; counts who came."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, act: Callable[[socket.socket, bytes], None]) -> None:
        self.act, self.came = act, 0
        self.heads: list[bytes] = []
        super().__init__(("127.0.0.1", 0), _Raw)


class _Raw(socketserver.BaseRequestHandler):
    server: RawServer

    def handle(self) -> None:
        self.server.came += 1
        head = b""
        while b"\r\n\r\n" not in head:
            got = self.request.recv(65536)
            if not got:
                return
            head += got
        self.server.heads.append(head)
        # The client leaves when it has had enough: that is how most cases end.
        with contextlib.suppress(ConnectionError, TimeoutError):
            self.server.act(self.request, head)


def register(folder: Path, url: str, protocol: str, model: str, **fields: Any) -> str:
    """Write a registration that opens the loopback network; returns the folder as text."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {
        "schema": "ignition.endpoint.v1",
        "protocol": protocol,
        "url": url,
        "model": model,
        "networks": ["127.0.0.0/8"],
        **fields,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return str(folder)
