"""Tokens and what is remembered of them: revocations, expiries, a store that is away, and floods."""

import asyncio
from collections import Counter

import pytest
from tests.api.conftest import serving
from tests.contracts.memory_store import MemoryTokens

from batonpass.api.access import LOOKUPS_EACH_ADDRESS_MAX, LOOKUPS_MAX, TOKENS_MAX, Gate, Unauthenticated
from batonpass.core.state.errors import LimitExceeded
from batonpass.core.state.ids import GroupId
from batonpass.runtime.access import AccessRole, Principal
from batonpass.runtime.history import NOBODY_ASKED
from batonpass.runtime.ports import StoreUnavailable

ADMIN_SECRET = "an-admin-secret-of-enough-length"  # noqa: S105 - the token that these tests make


class TokenStore(MemoryTokens):
    """Tokens in memory that count how often they are asked, and that can be away."""

    def __init__(self) -> None:
        super().__init__(lambda: self.at_ms)
        self.at_ms = 1_000
        self.asked = self.at_once = self.most = 0
        self.away = False
        self.open = asyncio.Event()
        self.open.set()

    async def find(self, secret: str) -> Principal | None:
        """Look a token up, as far as the test lets it."""
        self.asked += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.open.wait()
            if self.away:
                raise StoreUnavailable("the store is away")
            return await super().find(secret)
        finally:
            self.at_once -= 1


class Access:
    """A gate with a clock that is set."""

    def __init__(self, cache_s: float = 10.0) -> None:
        self.store = TokenStore()
        self.at_s = 0.0
        self.gate = Gate(self.store, cache_s=cache_s, now_ms=lambda: self.store.at_ms, monotonic=lambda: self.at_s)

    async def find(self, header: bytes | None, address: str = "10.0.0.1") -> Principal:
        """Return the caller that a header names, which came from that address."""
        return await self.gate.find(header, address)

    async def token(self, role: str = "viewer", *, expires_ms: int | None = None, group: str | None = None) -> bytes:
        """Return the header of a new token."""
        wish = Principal("somebody", AccessRole(role), GroupId(group) if group else None, expires_ms)
        self.made, secret = await self.store.create(wish, NOBODY_ASKED)
        return b"Bearer " + secret.encode()


async def test_a_token_is_looked_up_once_and_remembered_for_its_time() -> None:
    access = Access()
    header = await access.token()
    assert access.gate.remembered(header) is None
    for _ in range(3):
        assert (await access.find(header)).name == "somebody"
    assert access.gate.remembered(header) == Principal("somebody", AccessRole.VIEWER)
    assert access.store.asked == 1
    access.at_s = 10.1
    assert access.gate.remembered(header) is None
    await access.find(header)
    assert access.store.asked == 2


async def test_a_long_poll_that_waits_tells_nothing_to_a_token_that_was_revoked() -> None:
    access = Access(cache_s=10.0)
    async with serving(gate=access.gate, tokens=access.store) as api:
        api.client.headers["authorization"] = (await access.token("admin")).decode()
        worker = {"authorization": (await access.token("worker", group="orders")).decode()}
        await api.declare()
        for member, is_revoked, status in (("m1", False, 409), ("m2", True, 401)):
            epoch = (await api.call("PUT", f"/orders/members/{member}", {}, headers=worker)).json()["member_epoch"]
            path = f"/orders/members/{member}/assignment?after={epoch}&wait_ms=20000"
            polling = asyncio.create_task(api.call("GET", path, headers=worker))
            while not api.policy.limits.polls.taken:
                await asyncio.sleep(0.01)
            access.at_s += 11.0
            if is_revoked:
                await access.store.revoke(access.made.id, NOBODY_ASKED)
            assert (await api.call("POST", f"/orders/members/{member}/evict")).is_success
            assert (await polling).status_code == status


async def test_what_was_begun_goes_on_while_the_store_is_away() -> None:
    access = Access(cache_s=10.0)
    header = await access.token()
    assert await access.gate.still_admits(header, "10.0.0.1")
    await access.store.revoke(access.made.id, NOBODY_ASKED)
    access.store.away, access.at_s = True, 11.0
    assert await access.gate.still_admits(header, "10.0.0.1")
    access.store.away, access.at_s = False, 22.0
    assert not await access.gate.still_admits(header, "10.0.0.1")


async def test_a_revoked_token_is_refused_when_what_is_remembered_is_over() -> None:
    access = Access()
    header = await access.token()
    await access.find(header)
    assert await access.store.revoke(access.made.id, NOBODY_ASKED)
    assert access.gate.remembered(header) is not None
    access.at_s = 10.1
    with pytest.raises(Unauthenticated):
        await access.find(header)


async def test_what_is_remembered_of_a_token_does_not_outlive_it() -> None:
    access = Access()
    header = await access.token(expires_ms=2_000)
    await access.find(header)
    access.store.at_ms = 2_000
    assert access.gate.remembered(header) is None
    with pytest.raises(Unauthenticated):
        await access.find(header)


@pytest.mark.parametrize("header", [None, b"", b"Basic abc", b"Bearer", b"Bearer ", b"Bearer unknown", b"Bearer \xff"])
async def test_what_is_no_token_is_refused(header: bytes | None) -> None:
    access = Access()
    await access.token()
    assert access.gate.remembered(header) is None
    with pytest.raises(Unauthenticated):
        await access.find(header)


async def test_the_secret_of_a_token_is_worth_nothing_under_another_scheme() -> None:
    access = Access()
    header = await access.token()
    await access.find(header)
    assert access.gate.remembered(b"bearer " + header[7:]) is not None
    assert access.gate.remembered(b"Tokens " + header[7:]) is None


async def test_a_token_that_is_known_goes_on_while_the_store_is_away() -> None:
    """L5: a caller that was let in before still is; a new one gets 503."""
    access = Access()
    header, other = await access.token(), await access.token("admin")
    await access.find(header)
    access.at_s, access.store.away = 60.0, True
    assert (await access.find(header)).name == "somebody"
    with pytest.raises(StoreUnavailable):
        await access.find(other)
    asked = access.store.asked
    assert (await access.find(header)).name == "somebody"
    assert access.store.asked == asked
    access.at_s, access.store.away = 62.0, False
    await access.find(other)
    assert access.store.asked == asked + 1


async def test_a_slow_store_does_not_hold_up_a_known_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup that takes too long counts as a store that is away."""
    monkeypatch.setattr("batonpass.api.access.PATIENCE_S", 0.05)
    access = Access()
    header, other = await access.token(), await access.token()
    await access.find(header)
    access.at_s = 60.0
    access.store.open.clear()
    assert (await asyncio.wait_for(access.find(header), 2)).name == "somebody"
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(access.find(other), 2)
    access.store.open.set()


async def test_made_up_tokens_do_not_keep_a_revoked_one_alive() -> None:
    """Whoever holds a revoked token could flood the lookups of its address, so that it is never looked up again."""
    access = Access()
    header = await access.token()
    await access.find(header)
    await access.store.revoke(access.made.id, NOBODY_ASKED)
    access.at_s = 11.0
    access.store.open.clear()
    flood = [asyncio.create_task(access.find(b"Bearer no-%d" % number)) for number in range(LOOKUPS_EACH_ADDRESS_MAX)]
    await asyncio.sleep(0.02)
    lookup = asyncio.create_task(access.find(header))
    await asyncio.sleep(0.02)
    access.store.open.set()
    with pytest.raises(Unauthenticated):
        await lookup
    await asyncio.gather(*flood, return_exceptions=True)


async def test_many_who_wait_for_one_token_ask_once_and_many_tokens_ask_a_few_at_a_time() -> None:
    access = Access()
    header = await access.token()
    access.store.open.clear()
    same = [asyncio.create_task(access.find(header)) for _ in range(20)]
    others = [asyncio.create_task(access.find(b"Bearer no-%d" % number, f"10.0.0.{number}")) for number in range(60)]
    await asyncio.sleep(0.02)
    access.store.open.set()
    found = await asyncio.gather(*same, *others, return_exceptions=True)
    assert all(isinstance(one, Principal) for one in found[:20])
    assert all(isinstance(one, Unauthenticated) for one in found[20:])
    assert (access.store.asked, access.store.most) == (61, LOOKUPS_MAX)


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up tokens push out one another, and no good one, in use or not."""
    assert TOKENS_MAX >= 10_000
    monkeypatch.setattr("batonpass.api.access.TOKENS_MAX", 5)
    access = Access()
    header, idle = await access.token(), await access.token()
    await access.find(idle)
    for number in range(20):
        await access.find(header)
        if number % 3 == 0:
            access.at_s += 11
        with pytest.raises(Unauthenticated):
            await access.find(b"Bearer no-%d" % number)
    assert len(access.gate._known) == 2
    assert len(access.gate._unknown_until) == 5


async def test_a_flood_from_one_address_locks_nobody_else_out() -> None:
    access = Access()
    header, known = await access.token(), await access.token()
    await access.find(known)
    access.store.open.clear()
    flood = [asyncio.create_task(access.find(b"Bearer no-%d" % number, "10.6.6.6")) for number in range(1_000)]
    await asyncio.sleep(0)
    assert (await asyncio.wait(flood, timeout=0.1))[0]
    lookup = asyncio.create_task(access.find(header))
    # One that was known is looked up again, also for that address; whoever comes with the same token shares its lookup.
    access.at_s = 11.0
    again = asyncio.create_task(access.find(known, "10.6.6.6"))
    same = [asyncio.create_task(access.find(header)) for _ in range(100)]
    await asyncio.sleep(0)
    access.store.open.set()
    assert (await again).name == "somebody"
    assert {(await one).name for one in (lookup, *same)} == {"somebody"}
    found = await asyncio.gather(*flood, return_exceptions=True)
    kinds = Counter(type(one) for one in found)
    assert kinds == {Unauthenticated: LOOKUPS_EACH_ADDRESS_MAX, LimitExceeded: 1_000 - LOOKUPS_EACH_ADDRESS_MAX}
    with pytest.raises(Unauthenticated):
        await access.find(b"Bearer another", "10.6.6.6")


async def test_who_waits_too_long_in_the_queue_shuts_it_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a store that does not answer is left alone for a while; a long queue before it is not its fault."""
    access = Access()
    header = await access.token()
    access.store.open.clear()
    waiting = [asyncio.create_task(access.find(b"Bearer no-%d" % number)) for number in range(LOOKUPS_MAX)]
    await asyncio.sleep(0.01)
    monkeypatch.setattr("batonpass.api.access.PATIENCE_S", 0.02)
    with pytest.raises(StoreUnavailable):
        await access.find(b"Bearer late")
    access.store.open.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (await access.find(header)).name == "somebody"


async def test_the_admin_of_a_setting_stands_beside_the_store() -> None:
    """It is admitted while the store is away, too."""
    store = TokenStore()
    gate = Gate(store, cache_s=0.0, now_ms=lambda: 1_000, admin_secret=ADMIN_SECRET)
    admin = f"Bearer {ADMIN_SECRET}".encode()
    with pytest.raises(Unauthenticated):
        await gate.find(admin[:-1], "10.0.0.1")
    _, secret = await store.create(Principal("x", AccessRole.VIEWER), NOBODY_ASKED)
    assert await gate.find(b"Bearer " + secret.encode(), "10.0.0.1") == Principal("x", AccessRole.VIEWER)
    store.away = True
    assert await gate.find(admin, "10.0.0.1") == Principal("admin", AccessRole.ADMIN)
    assert await gate.still_admits(admin, "10.0.0.1")
