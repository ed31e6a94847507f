"""A proxy before a broker through which a producer's requests arrive late, or twice, as networks bring them about.

A request may still be in some buffer when its connection broke, or when its client gave it up. Here it arrives in the
client's next transaction, right before a request that is named. It comes over a connection of the proxy's own, so that
the broker's answer to it is known.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from tests.proof.proxy import Proxy


class Kind(IntEnum):
    """What a transactional producer asks, under its number in Kafka's protocol."""

    PRODUCE = 0
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS = 24
    ADD_OFFSETS = 25
    END = 26
    COMMIT_OFFSETS = 28


class Trouble(StrEnum):
    """What happens to a request; in each case it arrives, or arrives again, in the next transaction."""

    DELAYED = "delayed"
    """It does not arrive for now, and the client waits for an answer until it gives up."""
    CUT = "cut"
    """It does not arrive for now, and its connection breaks."""
    DOUBLED = "doubled"
    """It arrives, and its connection breaks before the answer."""


@dataclass
class Late:
    """A request that is under way, and what of the next transaction it is to meet."""

    kind: Kind
    request: bytes
    meets: Kind
    is_due: bool = False


Fate = Callable[[Kind], tuple[Trouble, Kind] | None]
"""What happens to a request of a kind, and what it is to meet later; None to let it pass."""


class LateRequests(Proxy):
    """Stands before a broker of this machine, which it leads its clients away from.

    Attributes:
        arrived: the kind of each request that came late, and the error code in the broker's answer (records: always 0).
    """

    def __init__(self, port: int, fate: Fate) -> None:
        super().__init__(port)
        self._broker_port = port
        self._fate = fate
        self._late: dict[bytes, Late] = {}
        self.arrived: list[tuple[Kind, int]] = []

    async def _next(self, source: asyncio.StreamReader, *, is_answer: bool) -> bytes:
        while True:
            try:
                size = await source.readexactly(4)
                message = size + await source.readexactly(int.from_bytes(size))
            except asyncio.IncompleteReadError:
                return b""
            if is_answer:
                # Wherever the broker says where it is to be found.
                return message.replace(address(self._broker_port), address(self.port))
            if int.from_bytes(message[4:6]) not in set(Kind) or await self._passes(message):
                return message

    async def _passes(self, request: bytes) -> bool:
        """Whether a request goes on to the broker now."""
        kind, whose = Kind(int.from_bytes(request[4:6])), transactional_id(request)
        late = self._late.get(whose)
        if late is not None and late.is_due and kind is late.meets:
            del self._late[whose]
            self.arrived.append((late.kind, await self._deliver(late.request)))
            late = None
        if late is not None:
            late.is_due |= kind in {Kind.END, Kind.INIT_PRODUCER_ID}
            return True
        fate = self._fate(kind)
        if fate is None:
            return True
        trouble, meets = fate
        self._late[whose] = Late(kind, request, meets)
        if trouble is Trouble.DELAYED:
            return False
        if trouble is Trouble.DOUBLED:
            assert await self._deliver(request) == 0
        raise ConnectionAbortedError

    async def _deliver(self, request: bytes) -> int:
        """Bring a request to the broker, and return the error code that closes its answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._broker_port)
        try:
            writer.write(request)
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        finally:
            writer.close()
        return int.from_bytes(answer[-2:])


def address(port: int) -> bytes:
    """Return how an answer names a broker of this machine."""
    return b"127.0.0.1" + port.to_bytes(4)


def transactional_id(request: bytes) -> bytes:
    """Return the text behind a request's head: in the versions that are spoken here, it is the transactional id."""
    at = 12
    at += 2 + int.from_bytes(request[at : at + 2])
    size = int.from_bytes(request[at : at + 2])
    return request[at + 2 : at + 2 + size]
