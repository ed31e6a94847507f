"""A server on this machine that answers every request alike, as what the programs of the images and hooks ask."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DEAD = "http://127.0.0.1:9"
PROXIES = {name: DEAD for kind in ("http", "https", "all") for name in (f"{kind}_proxy", f"{kind}_proxy".upper())}
"""Proxies for everything, behind which nobody is."""


@contextlib.contextmanager
def answering(
    body: bytes, *, status: int = 200, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1"
) -> Iterator[int]:
    """Yield the port at which every request is answered so."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

    with Server((address, 0), Answer) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
