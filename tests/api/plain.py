"""Plain connections to a coordinator, on which a test decides what is sent in one piece."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from tests.api.pairs import BEARER, Pair, paired


class Socket:
    """A plain connection to a coordinator, on which a test decides what is sent in one piece."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    opened: ClassVar[list[asyncio.StreamWriter]] = []

    @classmethod
    async def open(cls, pair: Pair) -> "Socket":
        """Connect to the first coordinator."""
        host, port = pair.urls[0].removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        cls.opened.append(writer)
        return cls(reader, writer)

    async def send(self, *pieces: bytes) -> None:
        """Send pieces, each on its own."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0.02)

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """Read one answer: status, headers, body."""
        async with asyncio.timeout(10):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        is_json = "json" in headers.get("content-type", "")
        return int(head[0].split()[1]), headers, json.loads(body) if is_json else body


def beat(seq: int, *, member: str = "m1", epoch: int = 1, headers: dict[str, str] | None = None, **body: Any) -> bytes:
    """Return the bytes of a heartbeat."""
    text = json.dumps({"seq": seq, "member_epoch": epoch, **body}).encode()
    lines = [f"POST /v1/groups/apples/members/{member}/heartbeat HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in (BEARER | (headers or {})).items()]
    return "\r\n".join([*lines, f"Content-Length: {len(text)}", "", ""]).encode() + text


def ask(after: int, *, wait_ms: int = 30_000, member: str = "m1", group: str = "apples", **headers: str) -> bytes:
    """Return the bytes of a long-poll."""
    lines = [
        f"GET /v1/groups/{group}/members/{member}/assignment?after={after}&wait_ms={wait_ms} HTTP/1.1",
        "Host: localhost",
    ]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in (BEARER | headers).items()]
    return "\r\n".join([*lines, "", ""]).encode()


async def epoch_of(pair: Pair) -> int:
    """Return the epoch of the member's present assignment."""
    found = await pair.call("GET", "/v1/groups/apples/members/m1/assignment?after=0")
    return int(found.json()["member_epoch"])


@asynccontextmanager
async def one_member(**more: Any) -> AsyncIterator[Pair]:
    """A coordinator with a group of one member; connections that are open at the end are closed."""
    async with paired(**more) as found:
        await found.declare("apples")
        joined = await found.call("PUT", "/v1/groups/apples/members/m1", json={})
        assert joined.status_code == 201
        yield found
        while Socket.opened:
            writer = Socket.opened.pop()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
