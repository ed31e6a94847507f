"""A token endpoint of a test's own: client credentials in, signed JWTs out, and the key that they are checked by."""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

AUDIENCE = "kafka"
CLIENT = "batonpass"
SECRET = "s3:cret/+"  # noqa: S105 - of these tests alone, with what has to be escaped
AS_SENT = base64.b64encode(b"batonpass:s3%3Acret%2F%2B").decode()
"""Both in the header of a request, as RFC 6749 has it."""


def _written(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _number(value: int) -> str:
    return _written(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@dataclass
class TokenServer:
    """Gives tokens to the client that knows the secret, and its key to whoever asks. What it does wrong is set here."""

    url: str = ""
    lifetime_s: float = 300
    """How long its tokens last from now; less than nothing: they have expired already."""

    says: dict[str, Any] | None = None
    """What it answers with instead of a token, with 200."""

    status: int = 200
    asked: list[dict[str, str]] = field(default_factory=list)
    """Who asked for a token and what for, each time."""

    _key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65_537, 2_048))

    def keys(self) -> dict[str, Any]:
        """Return the key set by which its tokens are checked."""
        public = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", "n": _number(public.n), "e": _number(public.e)}
        return {"keys": [key]}

    def token(self, lifetime_s: float | None = None, **claims: Any) -> str:
        """Return a signed token."""
        now = time.time()
        ends_at = now + (self.lifetime_s if lifetime_s is None else lifetime_s)
        payload = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": CLIENT,
            "iat": min(now, ends_at - 1),
            "exp": ends_at,
        } | claims
        parts = (json.dumps(part).encode() for part in ({"alg": "RS256", "typ": "JWT", "kid": "1"}, payload))
        signed = ".".join(map(_written, parts))
        return f"{signed}.{_written(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def answer(self, path: str, authorization: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Return status and body for who asks for a token; at ``/over`` those have expired that are said to be good."""
        self.asked.append(form | {"authorization": authorization})
        if self.status != 200:
            return self.status, {"error": "temporarily_unavailable"}
        if self.says is not None:
            return 200, self.says
        if authorization != f"Basic {AS_SENT}":
            return 401, {"error": "invalid_client", "error_description": "no client of that name and secret"}
        token = self.token(-100 if path == "/over" else None)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s}

    @contextmanager
    def listening(self, tls: ssl.SSLContext | None = None) -> Iterator[None]:
        """Answer requests for as long as the block lasts."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(200, server.keys())

            def do_POST(self) -> None:
                form_text = self.rfile.read(int(self.headers["content-length"])).decode()
                form = {name: values[0] for name, values in parse_qs(form_text).items()}
                self._send(*server.answer(self.path, self.headers.get("authorization", ""), form))

            def _send(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the standard library has it
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
            if tls is not None:
                listener.socket = tls.wrap_socket(listener.socket, server_side=True)
            thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            self.url = f"http{'' if tls is None else 's'}://127.0.0.1:{listener.server_port}"
            try:
                yield
            finally:
                listener.shutdown()
                thread.join()
