"""State that is not of its table's type: no record is passed over for it, for an earlier release has written it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from batonpass.worker.kafka import (
    TEXT,
    ActiveOptions,
    App,
    Context,
    Record,
    Serde,
    State,
    StoreFailed,
    Timer,
    json_of,
)


class Order(msgspec.Struct):
    """What state was in an earlier release."""

    count: int


class Dated(msgspec.Struct):
    """What it is now."""

    count: int
    last: str


@pytest.mark.parametrize(
    "read",
    [
        lambda state, _store: state.get(),
        lambda _state, store: store.get("ada"),
        lambda _state, store: list(store.scan()),
    ],
)
async def test_no_record_is_passed_over_for_state_that_cannot_be_read(read: Callable[[Any, Any], object]) -> None:
    app = App("a", options=ActiveOptions(on_error="skip"))
    orders = app.topic("orders", key=TEXT, value=TEXT)
    table = app.table("totals", key=TEXT, value=json_of(Dated))

    @app.process(orders, state=table)
    async def count(order: Record[str, str], context: Context, state: State[Dated]) -> None:
        if order.value == "old":
            context.store("totals").put(b"ada", msgspec.json.encode(Order(1)))
        else:
            read(state, context.store(table))

    test = app.test()
    await test.send(orders, "old", key="ada", timestamp_ms=0)
    with pytest.raises(StoreFailed, match=r"what table totals has of key .*ada.* cannot be read: .*`last`") as raised:
        await test.send(orders, "new", key="ada", timestamp_ms=1)
    assert isinstance(raised.value.__cause__, msgspec.ValidationError)
    with pytest.raises(StoreFailed):
        test.store(table).get("ada")


async def test_no_record_is_passed_over_for_the_key_of_a_timer_that_cannot_be_read() -> None:
    """It was set for another record than the one that makes it due."""
    app = App("a", options=ActiveOptions(on_error="skip"))
    longest = 9

    def load(data: bytes | None) -> str:
        key = TEXT.load(data)
        if len(key) > longest:
            raise ValueError("too long")
        return key

    orders = app.topic("orders", key=TEXT, value=TEXT)
    table = app.table("totals", key=Serde(str.encode, load), value=TEXT)
    fired = []

    @app.process(orders, state=table)
    async def remind(order: Record[str, str], _context: Context, state: State[str]) -> None:
        state.set_timer(order.timestamp_ms + 1)

    @app.on_timer(table)
    async def end(timer: Timer[str], _context: Context, _state: State[str]) -> None:
        fired.append(timer.key)

    test = app.test()
    await test.send(orders, "old", key="ada", timestamp_ms=0)
    longest = 2
    with pytest.raises(StoreFailed, match=r"what table totals has of key .*ada.* cannot be read: too long"):
        await test.send(orders, "new", key="bo", timestamp_ms=9)
    assert fired == []
