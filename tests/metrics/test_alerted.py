"""What alerts are made of: it is nought while all is well, and shows what is not, for as long as it lasts."""

from tests.api.conftest import Api
from tests.metrics.scraping import scrape

from batonpass.core.state.ids import GroupId
from batonpass.core.state.inputs import Tick
from batonpass.metrics.counts import HANDOVERS


async def test_the_lag_of_inputs_is_added_up_and_missing_where_no_active_reports_one(counted: Api) -> None:
    await counted.declare(session_timeout_ms=30_000)
    epoch = (await counted.join("m1")).json()["member_epoch"]
    running = {"role": "active", "state": "running"}
    await counted.beat("m1", 1, epoch, {"0_0": running, "0_1": running})
    seen = await scrape(counted)
    assert "batonpass_group_input_lag_records{group=orders}" not in seen
    assert seen["batonpass_group_input_lag_unknown_tasks{group=orders}"] == 2
    assert seen["batonpass_group_session_timeout_seconds{group=orders}"] == 30
    await counted.beat("m1", 2, epoch, {"0_0": running | {"input_lag": 0}, "0_1": running | {"input_lag": 70}})
    seen = await scrape(counted)
    assert seen["batonpass_group_input_lag_records{group=orders}"] == 70
    assert seen["batonpass_group_input_lag_records_max{group=orders}"] == 70
    assert seen["batonpass_group_input_lag_unknown_tasks{group=orders}"] == 0


async def test_two_claims_of_one_task_are_seen(counted: Api) -> None:
    await counted.declare()
    running = {"role": "active", "state": "running"}
    epoch = (await counted.join("m1")).json()["member_epoch"]
    await counted.beat("m1", 1, epoch, {"0_0": running, "0_1": running})
    other = (await counted.join("m2")).json()["member_epoch"]
    assert (await scrape(counted))["batonpass_group_claimed_twice{group=orders}"] == 0
    await counted.beat("m2", 1, other, {"0_0": running})
    assert (await scrape(counted))["batonpass_group_claimed_twice{group=orders}"] == 1
    await counted.beat("m2", 2, other, {"0_0": {"role": "warmup", "lag": 3}})
    assert (await scrape(counted))["batonpass_group_claimed_twice{group=orders}"] == 0


async def test_a_warmup_that_stalls_is_seen(counted: Api) -> None:
    await counted.declare(warmup_stall_timeout_ms=10_000)
    running = {"role": "active", "state": "running"}
    epoch = (await counted.join("m1")).json()["member_epoch"]
    await counted.beat("m1", 1, epoch, {"0_0": running, "0_1": running})
    await counted.join("m2")
    shown = (await counted.assignment("m2", 0)).json()
    (task,) = shown["assignment"]["warmup"]
    for seq in (2, 3, 4, 5, 6):
        await counted.beat("m1", seq, epoch, {"0_0": running, "0_1": running})
        await counted.beat("m2", seq, shown["member_epoch"], {task: {"role": "warmup", "lag": 500_000}})
        counted.clock.at_ms += 3_000
    await counted.coordinator.ask(GroupId("orders"), Tick())
    assert (await scrape(counted))["batonpass_group_warmups_stalled{group=orders}"] == 1
    counted.clock.at_ms += 20_000
    assert (await scrape(counted))["batonpass_group_warmups_stalled{group=orders}"] == 0


async def test_a_storm_is_seen(counted: Api) -> None:
    await counted.declare(partitions=8, session_timeout_ms=10_000, initial_rebalance_delay_ms=1_000)
    for number in range(4):
        await counted.join(f"m{number}")
    counted.clock.at_ms += 1_000
    await counted.coordinator.ask(GroupId("orders"), Tick())
    assert (await scrape(counted))["batonpass_group_storm{group=orders}"] == 0
    # Where the event loop stood still meanwhile, on a busy machine, all are judged only a session timeout later.
    for seq in range(1, 6):
        counted.clock.at_ms += 4_000
        await counted.beat("m0", seq, 1)
        await counted.coordinator.ask(GroupId("orders"), Tick())
    assert (await scrape(counted))["batonpass_group_storm{group=orders}"] == 1


async def test_an_instance_that_comes_and_goes_is_seen(counted: Api) -> None:
    """Three times within a quarter of an hour is flapping; twice is not."""
    await counted.declare()
    flapping = "batonpass_group_flapping_instances{group=orders}"
    for run in range(3):
        assert (await scrape(counted))[flapping] == 0
        await counted.join(f"a{run}", instance_id="orders-0")
        await counted.call("DELETE", f"/orders/members/a{run}")
        counted.clock.at_ms += 60_000
    assert (await scrape(counted))[flapping] == 1
    counted.clock.at_ms += 800_000
    assert (await scrape(counted))[flapping] == 0


async def test_handovers_count_from_nought(counted: Api) -> None:
    """So that a rate over the first one is not nought."""
    await counted.declare()
    seen = await scrape(counted)
    for kind in set(HANDOVERS.values()):
        assert seen[f"batonpass_handovers_total{{group=orders,kind={kind}}}"] == 0
        assert seen[f"batonpass_handover_gap_seconds_bucket{{group=orders,kind={kind},le=+Inf}}"] == 0
