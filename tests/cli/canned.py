"""A server that answers what a test tells it to, and remembers what it was asked."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from typer.testing import CliRunner, Result

from batonpass.cli import app

Answer = tuple[int, Any]


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass
class Canned:
    """What is answered, by method and path; a list is used up from its front, its last entry stays.

    By its clock it is ``ahead_s`` later than here.
    """

    url: str
    ahead_s: float = 0.0
    answers: dict[tuple[str, str], list[Answer]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def on(self, method: str, path: str, *answers: Answer) -> None:
        """Answer so, one after the other."""
        self.answers[method, path] = list(answers)

    def calls(self, method: str) -> list[Asked]:
        """Return what was asked by a method."""
        return [one for one in self.asked if one.method == method]

    def run(self, *arguments: str, token: str | None = None, stdin: str | None = None) -> Result:
        """Run a command against this server, in this process."""
        environment = {"BATONPASS_URL": self.url, "BATONPASS_TOKEN": token or "", "BATONPASS_DATA": ""}
        return CliRunner().invoke(app, list(arguments), env=environment, input=stdin)


@contextmanager
def canned(tls: ssl.SSLContext | None = None) -> Iterator[Canned]:
    """Serve canned answers, over TLS where that is given."""

    class Serving(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        known: ClassVar[Canned]

        def answer(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(size)
            split = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(split.query).items()}
            sent = json.loads(body) if body else None
            self.known.asked.append(Asked(self.command, split.path, query, sent, dict(self.headers)))
            given = self.known.answers.get((self.command, split.path), [(404, {"type": "not-found", "detail": "no"})])
            status, answer = given.pop(0) if len(given) > 1 else given[0]
            content = answer if isinstance(answer, bytes) else b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.send_header("etag", '"7"')
            if self.headers.get("accept") == "text/event-stream" and status == HTTPStatus.OK:
                self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(content)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string((timestamp or time.time()) + self.known.ahead_s)

        do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - the names that the library looks for

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Serving) as server:
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        Serving.known = Canned(f"{'http' if tls is None else 'https'}://localhost:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield Serving.known
        finally:
            server.shutdown()
            thread.join()
