"""State that is not of its table's type: no record is passed over for it, for an earlier release has written it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from batonpass.worker.kafka import (
    INT,
    TEXT,
    ActiveOptions,
    App,
    Context,
    Record,
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


async def test_no_record_is_passed_over_for_a_timer_whose_key_cannot_be_read() -> None:
    app = App("a", options=ActiveOptions(on_error="skip"))
    orders = app.topic("orders", key=INT, value=INT)
    table = app.table("totals", key=INT, value=INT)

    @app.process(orders, state=table)
    async def count(order: Record[int, int], context: Context, state: State[int]) -> None:
        if order.value == 0:
            # As an earlier release has set it, whose keys were text.
            state._known_timers.set(b"totals\0ada", 100)

    @app.on_timer(table)
    async def end(timer: Timer[int], context: Context, state: State[int]) -> None:
        state.delete()

    test = app.test()
    await test.send(orders, 0, key=1, timestamp_ms=0)
    with pytest.raises(StoreFailed, match=r"what table totals has of key b'ada' cannot be read"):
        await test.send(orders, 1, key=1, timestamp_ms=200)
