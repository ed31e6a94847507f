"""Whatever is sent in whatever pieces, every request gets its own answer, in order."""

import asyncio
import random
from itertools import count, pairwise

import pytest
from tests.api.pairs import Pair
from tests.api.plain import Socket, ask, beat, epoch_of, one_member
from tests.api.test_heartbeats import RUNNING
from tests.waiting import until

STORIES = 12
REQUESTS = 60


def request(fate: random.Random, seq: int, epoch: int) -> tuple[bytes, tuple[int, int | str]]:
    """Return a request, and what its answer shows that it is its own."""
    named = f"r{seq}"
    match fate.choices(("beat", "named beat", "poll", "late poll", "other", "lost", "bad"), (8, 2, 3, 2, 1, 1, 1))[0]:
        case "beat":
            return beat(seq, epoch=epoch, tasks=RUNNING), (200, seq)
        case "named beat":
            return beat(seq, epoch=epoch, tasks=RUNNING, headers={"X-Request-Id": named}), (200, named)
        case "poll":
            return ask(epoch, wait_ms=fate.choice((0, 20, 60)), x_request_id=named), (204, named)
        case "late poll":
            return ask(0, x_request_id=named), (200, named)
        case "other":
            return ask(0, x_request_id=named).replace(b"/assignment?after=0&wait_ms=30000", b""), (200, named)
        case "lost":
            return beat(seq, member="nobody", headers={"X-Request-Id": named}), (404, named)
        case _:
            bad = beat(seq, epoch=epoch, headers={"X-Request-Id": named})
            return bad.replace(b'"member_epoch"', b'"member-epoch"'), (422, named)


def cut(fate: random.Random, sent: bytes) -> list[bytes]:
    """Return a text in pieces, most of them at ends of requests or close to them."""
    ends = [at for at in range(len(sent)) if sent.startswith(b"\r\n\r\n", at)]
    near = [min(len(sent), at + fate.choice((0, 1, 4, 4, 5, 40))) for at in ends if fate.random() < 0.5]
    anywhere = [fate.randrange(len(sent)) for _ in range(fate.randrange(6))]
    return [sent[begin:end] for begin, end in pairwise(sorted({0, len(sent), *near, *anywhere}))]


@pytest.mark.parametrize("seed", range(STORIES))
async def test_every_request_gets_its_own_answer(seed: int) -> None:
    """Requests of all kinds follow each other on a few connections, cut and joined at random."""
    fate, numbers = random.Random(seed), count(1)
    async with one_member(member_requests_per_s=10_000, member_requests_burst=10_000) as pair:
        epoch = await epoch_of(pair)
        for _ in range(3):
            wire = await Socket.open(pair)
            left = [request(fate, next(numbers), epoch) for _ in range(REQUESTS // 3)]
            reading = asyncio.create_task(answers(wire, len(left)))
            wanted = [expected for _, expected in left]
            while left:
                some = [left.pop(0)[0] for _ in range(min(len(left), fate.choice((1, 1, 1, 2, 5))))]
                for piece in cut(fate, b"".join(some)):
                    wire.writer.write(piece)
                    await asyncio.sleep(fate.choice((0, 0.001, 0.01)))
            found = await reading
            assert [
                (status, seq if isinstance(own, int) else name)
                for (status, name, seq), (_, own) in zip(found, wanted, strict=True)
            ] == wanted, f"seed {seed}"
        await nothing_is_left(pair)


async def answers(wire: Socket, number: int) -> list[tuple[int, str, object]]:
    """Read so many answers: status, id, and the seq of a heartbeat."""
    found = []
    for _ in range(number):
        status, headers, body = await wire.answer()
        found.append((status, headers["x-request-id"], body.get("seq") if isinstance(body, dict) else None))
    return found


async def nothing_is_left(pair: Pair) -> None:
    """Check that no poll is counted as open."""
    await until(lambda: pair.processes[0].policy.limits.polls.taken == 0, within_s=12)
