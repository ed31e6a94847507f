"""What Prometheus sees of a coordinator: counts that are true, gauges of what is there, and nothing of what is gone."""

import asyncio
import re
import threading
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, NoReturn

import httpx2 as httpx
import msgspec
import pytest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus_text
from tests.api.conftest import MEMBERS_SHOWN, Api
from tests.core.scene import Scene, running, topology
from tests.core.test_open_transactions import ready_to_move
from tests.metrics.scraping import Series, scrape
from tests.waiting import until

from batonpass import bootstrap
from batonpass.codec import requests
from batonpass.codec.bodies import HeartbeatBody
from batonpass.codec.generations import Generation
from batonpass.codec.requests import OWN_NUMBERS
from batonpass.codec.shape import Shape, optional_numbers
from batonpass.codec.views import member_body
from batonpass.core.decide import Decision
from batonpass.core.handover.view import View
from batonpass.core.state.ids import GroupId, InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import StreamsProcess, StreamsRebalance, Tick
from batonpass.core.state.model import Group, Role, Target
from batonpass.core.state.records import TargetPlaced
from batonpass.core.state.replies import Done
from batonpass.core.state.soft import Soft
from batonpass.explain.health import describe
from batonpass.invariants import Violation
from batonpass.metrics import groups as shown_groups
from batonpass.metrics.counts import GROUPS_AT_ONCE, HANDOVERS, LOOP_EVERY_S, Counts
from batonpass.metrics.groups import FAMILIES, OF_MEMBERS, PREFIX, GroupGauges, add_up
from batonpass.runtime.events import Event, EventType
from batonpass.runtime.history import History
from batonpass.runtime.observers import AWAY_S, CommitWatch
from batonpass.runtime.ports import Commit

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
# Gauges of a process are shown where it is put together.
OF_PROCESS = re.findall(r'counts\.add_gauge\(\s*"(\w+)"', Path(bootstrap.__file__).read_text())
# https://prometheus.io/docs/practices/naming: base units, and what a counter ends in.
NAME = re.compile(r"batonpass_[a-z_]+")
NOT_BASE = re.compile(r"_(ms|millis|minutes|hours|kb|mb|percent)(_|$)")


def of(series: Series, group: str) -> set[str]:
    """Return the names of the series of a group."""
    return {name for name in series if f"group={group}" in name}


async def hand_over(api: Api) -> None:
    """Let ``m1`` run two tasks, ``m2`` join and warm one up, and take it over, with 30 ms without an owner."""
    running = {"role": "active", "state": "running"}
    epoch = (await api.join("m1")).json()["member_epoch"]
    await api.beat("m1", 1, epoch, {"0_0": running, "0_1": running})
    await api.join("m2")
    shown = (await api.assignment("m2", 0)).json()
    (task,) = shown["assignment"]["warmup"]
    await api.beat("m2", 1, shown["member_epoch"], {task: {"role": "warmup", "lag": 500}})
    await api.beat("m2", 2, shown["member_epoch"], {task: {"role": "warmup", "lag": 0}})
    revoked = (await api.assignment("m1", epoch)).json()["member_epoch"]
    left = {name: running for name in ("0_0", "0_1") if name != task}
    await api.beat("m1", 2, revoked, left)
    api.clock.at_ms += 30
    granted = (await api.assignment("m2", shown["member_epoch"])).json()["member_epoch"]
    await api.beat("m2", 3, granted, {task: running})


async def test_both_forms_can_be_read(counted: Api) -> None:
    """OpenMetrics for a scraper that prefers it, Prometheus' text for all others."""
    await counted.declare()
    plain = await counted.client.get("/metrics")
    open_ = await counted.client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert plain.headers["content-type"].startswith("text/plain")
    assert open_.headers["content-type"].startswith("application/openmetrics-text")
    found = {family.name for family in open_metrics(open_.text)}  # type: ignore[no-untyped-call]
    assert {"batonpass_decisions", "batonpass_group_members", "batonpass_build", "process_cpu_seconds"} <= found
    assert {name.removesuffix("_total") for name in names(plain)} - {"batonpass_build_info"} <= found


def names(answer: httpx.Response) -> set[str]:
    """Return the names of our families in Prometheus' text."""
    return {family.name for family in prometheus_text(answer.text) if family.name.startswith("batonpass")}


async def test_names_have_one_prefix_and_base_units(counted: Api) -> None:
    await counted.declare()
    await hand_over(counted)
    answer = await counted.client.get("/metrics")
    families = [family for family in prometheus_text(answer.text) if family.name.startswith("batonpass")]
    for family in families:
        assert NAME.fullmatch(family.name)
        assert not NOT_BASE.search(family.name)
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert "task" not in sample.labels
            if family.type == "counter":
                assert sample.name.endswith("_total")


MOVES = ("moves", "moves_lower_bound")


async def test_the_list_for_people_is_whole(counted: Api) -> None:
    await counted.declare()
    await hand_over(counted)
    answer = await counted.client.get("/metrics")
    shown = {
        (found[1], found[2])
        for found in re.finditer(r"^\| `(batonpass_\w+)` \| (\w+) \|", DOCUMENT.read_text(), re.MULTILINE)
    }
    served = {
        (family.name + ("_total" if family.type == "counter" else ""), family.type)
        for family in prometheus_text(answer.text)
        if family.name.startswith("batonpass")
    }
    assert len(OF_PROCESS) >= 5
    assert shown == served | {(f"batonpass_{name}", "gauge") for name in OF_PROCESS}


async def test_a_move_that_is_still_to_come_counts_once(counted: Api) -> None:
    """Three tasks are to go to m2; the target for m3 has them to come, too, and adds two."""
    await counted.declare(partitions=6)
    epoch = (await counted.join("m1")).json()["member_epoch"]
    await counted.beat("m1", 1, epoch, {f"0_{number}": {"role": "active", "state": "running"} for number in range(6)})
    await counted.join("m2")
    seen = await scrape(counted)
    assert seen["batonpass_moves_total{group=orders}"] == 6 + 3
    await counted.join("m3")
    seen = await scrape(counted)
    assert seen["batonpass_generations_total{group=orders}"] == 3
    assert seen["batonpass_moves_total{group=orders}"] == 6 + 3 + 2
    assert seen["batonpass_moves_lower_bound_total{group=orders}"] == 6 + 3 + 2


def test_what_a_placement_moved_is_counted_where_it_was_decided() -> None:
    """The event loop, which counts, does not look at each of 200,000 tasks."""

    class Unread(dict[TaskId, Target]):
        def items(self) -> NoReturn:
            raise AssertionError("looked at")

        __iter__ = keys = values = items

    counts = Counts()
    placed = TargetPlaced(1, 1, 0, Unread({TaskId("0_0"): Target(MemberId("m1"))}), moves=5, lower_bound=4)
    group = Group(GroupId("orders"))
    counts.decided((Tick(),), Decision((placed,), group, Soft(), (Done(),), None, ()), 1.0)
    made = Generation(1, 1, 0, (), 1, 9, 5, 4, 0, 0.0, 0.0, 1.0, (), ())
    counts.committed(Commit(group.id, 1, 0, (placed,), History(generation=made, new_moves=3)), 1.0)
    told = {name: counts.registry.get_sample_value(f"batonpass_{name}_total", {"group": "orders"}) for name in MOVES}
    assert told == {"moves": 3, "moves_lower_bound": 2}


async def test_what_happens_is_counted(counted: Api) -> None:
    await counted.declare()
    await hand_over(counted)
    seen = await scrape(counted)
    heartbeats = [
        value for name, value in seen.items() if name.startswith("batonpass_decisions_total{input=Heartbeat,")
    ]
    assert sum(heartbeats) == 5
    assert seen["batonpass_generations_total{group=orders}"] == 2
    assert seen["batonpass_moves_total{group=orders}"] == 3
    assert seen["batonpass_moves_lower_bound_total{group=orders}"] == 3
    assert seen["batonpass_handovers_total{group=orders,kind=warm}"] == 1
    assert seen["batonpass_handover_gap_seconds_count{group=orders,kind=warm}"] == 1
    assert seen["batonpass_handover_gap_seconds_sum{group=orders,kind=warm}"] == pytest.approx(0.03)
    assert seen["batonpass_decisions_total{input=Join,outcome=wrote}"] == 2
    assert seen["batonpass_append_seconds_count{}"] == counted.log.appends
    assert seen["batonpass_group_generation{group=orders}"] == 2
    beats = "method=POST,path=/v1/groups/{group}/members/{member}/heartbeat,status=200"
    assert seen["batonpass_requests_total{" + beats + "}"] == 5


async def test_how_long_a_call_waits_for_news_is_not_measured(counted: Api) -> None:
    await counted.declare()
    epoch = (await counted.join("m1")).json()["member_epoch"]
    await counted.assignment("m1", epoch, wait_ms=1)
    await counted.call("POST", "/orders/members/m1/drain?wait_ms=1")
    await counted.call("DELETE", "/orders/members/m1/drain")
    seen = await scrape(counted)
    member = "/v1/groups/{group}/members/{member}"
    assert seen["batonpass_requests_total{method=GET,path=" + member + "/assignment,status=204}"] == 1
    assert seen["batonpass_requests_total{method=POST,path=" + member + "/drain,status=202}"] == 1
    assert "batonpass_request_seconds_count{path=" + member + "/assignment}" not in seen
    assert seen["batonpass_request_seconds_count{path=" + member + "/drain}"] == 1


async def test_however_many_scrape_at_once_the_groups_are_looked_at_twice(
    counted: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once by the first, and once for all who come meanwhile, whatever version they ask for."""
    looks: list[int] = []
    look = GroupGauges.look

    def counting(gauges: GroupGauges) -> Any:
        looks.append(1)
        return look(gauges)

    monkeypatch.setattr(GroupGauges, "look", counting)
    await counted.declare()
    forms = [f"application/openmetrics-text; version=1.0.{number}" for number in range(20)]
    answers = await asyncio.gather(*(counted.client.get("/metrics", headers={"accept": form}) for form in forms))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) <= 2
    before = len(looks)
    assert before <= 2
    assert "batonpass_group_members" in (await counted.client.get("/metrics")).text
    assert len(looks) == before + 1


async def test_a_scrape_waits_for_no_look_at_a_large_group(counted: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows what the last look found, which is a minute old or two; where nobody scraped for long, it looks."""
    may_look = threading.Event()
    may_look.set()

    def slowly(view: View) -> Any:
        assert may_look.wait(60)
        return describe(view)

    monkeypatch.setattr(shown_groups, "describe", slowly)
    monkeypatch.setattr(shown_groups, "COPIES_EACH_SCRAPE", 1)
    unowned = "batonpass_group_tasks{group=orders,state=unowned}"
    members = "batonpass_group_members{group=orders,state=active}"
    await counted.declare(partitions=6)
    assert (await scrape(counted))[unowned] == 6
    may_look.clear()
    await counted.join("m1")
    for _ in range(3):
        counted.clock.at_ms += shown_groups.LOOKED_AT_EVERY_MS
        seen = await asyncio.wait_for(scrape(counted), 10)
        assert (seen[unowned], seen[members]) == (6, 1)
    may_look.set()

    async def is_up_to_date() -> bool:
        return (await scrape(counted))[unowned] == 0

    await until(is_up_to_date, within_s=30)
    await counted.client.delete("/v1/groups/orders/members/m1")
    counted.clock.at_ms += shown_groups.LOOKED_AT_WITHIN_MS + 1
    assert (await scrape(counted))[unowned] == 6


async def test_the_series_of_many_groups_begin_and_end_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that has read a thousand groups goes on answering during its first scrape."""
    counts, turn, groups_of = Counts(), [0], Counter[int]()
    labels, remove = MetricWrapperBase.labels, MetricWrapperBase.remove

    def begun(*args: Any) -> Any:
        groups_of[turn[0]] += 1
        return labels(*args)

    def removed(*args: Any) -> None:
        groups_of[turn[0]] += 1
        remove(*args)

    async def take_turns() -> None:
        while True:
            turn[0] += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(MetricWrapperBase, "labels", begun)
    monkeypatch.setattr(MetricWrapperBase, "remove", removed)
    of_a_group = 2 * len(set(HANDOVERS.values()))
    others = asyncio.create_task(take_turns())
    names = {f"g-{number}" for number in range(6 * GROUPS_AT_ONCE)}
    for present in (names, set[str]()):
        groups_of.clear()
        await counts.keep_to(present)
        assert sum(groups_of.values()) == of_a_group * len(names)
        assert max(groups_of.values()) <= of_a_group * GROUPS_AT_ONCE
    others.cancel()


async def test_how_a_group_stands_is_shown(counted: Api) -> None:
    await counted.declare(partitions=8, max_warmup_replicas=1)
    epoch = (await counted.join("m1")).json()["member_epoch"]
    running = {f"0_{number}": {"role": "active", "state": "running"} for number in range(8)}
    await counted.beat("m1", 1, epoch, running)
    await counted.join("m2", max_disk_bytes=1_000)
    shown = (await counted.assignment("m2", 0)).json()
    (task,) = shown["assignment"]["warmup"]
    await counted.beat("m2", 1, shown["member_epoch"], {task: {"role": "warmup", "lag": 700, "disk_bytes": 90}})
    counted.clock.at_ms += 2_500
    seen = await scrape(counted)
    assert seen["batonpass_group_state{group=orders,state=balancing}"] == 1
    assert seen["batonpass_group_state{group=orders,state=at-rest}"] == 0
    assert seen["batonpass_group_members{group=orders,state=active}"] == 2
    assert seen["batonpass_group_tasks{group=orders,state=running}"] == 8
    assert seen["batonpass_group_warmups{group=orders}"] == 1
    assert seen["batonpass_group_moves_pending{group=orders}"] == 4
    assert seen["batonpass_group_held_back{group=orders,reason=warmup-budget}"] == 3
    assert seen["batonpass_group_lag_records{group=orders,role=warmup}"] == 700
    assert seen["batonpass_group_lag_records_max{group=orders,role=warmup}"] == 700
    assert seen["batonpass_group_oldest_heartbeat_age_seconds{group=orders}"] == 2.5
    assert seen["batonpass_group_probe_timestamp_seconds{group=orders}"] * 1_000 > counted.clock.at_ms
    assert seen["batonpass_member_tasks{group=orders,member=m2,role=warmup}"] == 1
    assert seen["batonpass_member_disk_bytes{group=orders,member=m2}"] == 90
    assert seen["batonpass_member_max_disk_bytes{group=orders,member=m2}"] == 1_000
    for name in ("disk_bytes", "max_disk_bytes"):
        assert f"batonpass_member_{name}{{group=orders,member=m1}}" not in seen
    assert seen["batonpass_member_heartbeat_age_seconds{group=orders,member=m1}"] == 2.5
    await counted.call("POST", "/orders/members/m1/drain")
    seen = await scrape(counted)
    assert seen["batonpass_group_members{group=orders,state=draining}"] == 1


async def test_the_series_of_what_is_gone_are_gone(counted: Api) -> None:
    await counted.declare()
    await counted.call("PUT", "/clicks", {"topology": {"subtopologies": [{"id": "0", "partitions": 1}]}})
    await hand_over(counted)
    before = await scrape(counted)
    assert any("member=m2" in name for name in before)
    assert of(before, "clicks")
    await counted.call("DELETE", "/orders/members/m2")
    seen = await scrape(counted)
    assert not [name for name in seen if "member=m2" in name]
    assert any("member=m1" in name for name in seen)
    await counted.call("DELETE", "/orders?force=true")
    seen = await scrape(counted)
    assert of(seen, "orders") == set()
    assert of(seen, "clicks")
    await counted.declare()
    assert (await scrape(counted))["batonpass_events_total{group=orders,type=group-declared}"] == 1


async def test_large_groups_have_no_series_for_each_member(counted: Api) -> None:
    await counted.declare()
    for number in range(MEMBERS_SHOWN + 1):
        await counted.join(f"m{number}")
    seen = await scrape(counted)
    assert not [name for name in seen if "member=" in name]
    assert seen["batonpass_group_members{group=orders,state=active}"] == MEMBERS_SHOWN + 1


async def test_made_up_names_and_paths_make_no_series_of_their_own(counted: Api) -> None:
    await scrape(counted)
    looks: list[Series] = []
    for round_ in range(2):
        for number in range(20):
            await counted.client.get(f"/nonsense/{round_}/{number}")
            await counted.call("GET", f"/none-{round_}-{number}")
            await counted.beat(f"nobody-{number}", 1, 1)
            await counted.call("POST", f"/none-{round_}-{number}/members/m/heartbeat", {"seq": 1, "member_epoch": 1})
            await counted.client.request(f"VERB{number}", "/v1/groups")
        looks.append(await scrape(counted))
    assert set(looks[0]) == set(looks[1])
    assert looks[1]["batonpass_requests_refused_total{reason=unknown-group}"] == 120


async def test_failures_are_counted(counted: Api) -> None:
    await counted.declare()
    counted.log.refuse = True
    assert (await counted.join("m1")).status_code == 503
    counted.log.refuse = False
    counts = counted.counts
    assert isinstance(counts, Counts)
    counts.law_broken(GroupId("orders"), Tick(), [Violation("L1", "x"), Violation("L1", "y"), Violation("L8", "z")])
    counts.defect(GroupId("orders"), Tick(), ValueError())
    counts.stalled(2_500.0)
    seen = await scrape(counted)
    assert seen["batonpass_store_errors_total{}"] == 1
    assert seen["batonpass_requests_refused_total{reason=store-unavailable}"] == 1
    assert (seen["batonpass_laws_broken_total{law=L1}"], seen["batonpass_laws_broken_total{law=L8}"]) == (1, 1)
    assert seen["batonpass_defects_total{}"] == 1
    assert (seen["batonpass_stalls_total{}"], seen["batonpass_stalled_seconds_total{}"]) == (1, 2.5)


async def test_an_event_that_stands_for_many_tasks_counts_as_many(counted: Api) -> None:
    """And the gap of an owner that fell silent is the longest that it can have been."""
    await counted.declare()
    counts = counted.counts
    assert isinstance(counts, Counts)
    body = {"tasks": 250, "sample": ["0_0"], "warm": True, "gap_ms": 40}
    silent = {"warm": False, "gap_ms": 200, "gap_is_lower_bound": True, "gap_at_most_ms": 45_200}
    unheard = silent | {"gap_at_most_ms": None}
    events = (
        Event(EventType.HANDOVER_DONE, 0, 1, MemberId("m1"), None, body),
        *(Event(EventType.TAKEOVER_DONE, 0, 1, MemberId("m1"), TaskId("0_0"), one) for one in (silent, unheard)),
        Event(EventType.PROBED, 0, 1, None, None, {"changed": False, "next_probe_at": None}),
    )
    counts.committed(Commit(GroupId("orders"), 1, 0, (), History(events=events)), 1.5)
    seen = await scrape(counted)
    assert seen["batonpass_handovers_total{group=orders,kind=warm}"] == 250
    assert seen["batonpass_handover_gap_seconds_sum{group=orders,kind=warm}"] == pytest.approx(10)
    assert seen["batonpass_handover_gap_seconds_sum{group=orders,kind=cold}"] == pytest.approx(45.4)
    assert seen["batonpass_probes_total{group=orders,outcome=futile}"] == 1
    assert set(HANDOVERS.values()) == {"warm", "cold", "failover", "recovered"}


async def test_a_gauge_of_another_part_is_read_when_it_is_scraped(counted: Api) -> None:
    counts = counted.counts
    assert isinstance(counts, Counts)
    parked = [0]
    counts.add_gauge("polls_parked", "Long-polls that wait.", lambda: parked[0])
    parked[0] = 7
    assert (await scrape(counted))["batonpass_polls_parked{}"] == 7


async def test_a_loop_that_is_late_is_measured(counted: Api) -> None:
    counts = counted.counts
    assert isinstance(counts, Counts)
    watching = asyncio.create_task(counts.watch_loop())
    await asyncio.sleep(0)
    block(LOOP_EVERY_S + 0.1)
    await asyncio.sleep(0.01)
    watching.cancel()
    seen = await scrape(counted)
    assert seen["batonpass_loop_lag_seconds_count{}"] == 1
    assert seen["batonpass_loop_lag_seconds_sum{}"] >= 0.09


def block(seconds: float) -> None:
    """Hold the event loop up."""
    import time  # noqa: PLC0415 - nothing else here may wait like this

    time.sleep(seconds)


def test_every_family_says_what_it_is() -> None:
    for meaning, labels in [*FAMILIES.values(), *OF_MEMBERS.values()]:
        assert meaning
        assert labels[0] == "group"


class PlantedBody(HeartbeatBody):
    """A heartbeat with a number that a member says of itself."""

    cpu_share: Annotated[float, msgspec.Meta(ge=0, le=1)] | msgspec.UnsetType = msgspec.UNSET


async def test_a_number_that_a_member_says_of_itself_is_declared_once(
    counted: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its body declares it, and a family says what it means. A wrong one counts as left out (protocol 4.9)."""
    monkeypatch.setattr(requests, "_HEARTBEAT", Shape(PlantedBody, lenient=True))
    monkeypatch.setattr(requests, "OWN_NUMBERS", optional_numbers(PlantedBody))
    monkeypatch.setitem(OF_MEMBERS, "member_cpu_share", ("How busy.", ("group", "member")))
    await counted.declare()
    epoch = (await counted.join("m1")).json()["member_epoch"]
    for seq, said, known in ((1, {}, None), (2, {"cpu_share": 0.5}, 0.5), (3, {"cpu_share": -1}, 0.5), (4, {}, 0.5)):
        body = {"seq": seq, "member_epoch": epoch, **said}
        answer = await counted.call("POST", "/orders/members/m1/heartbeat", body)
        assert answer.status_code == 200
        is_wrong = said.get("cpu_share", 0) < 0
        assert [one["detail"] for one in answer.json()["status"] if one["code"] == "invalid-number"] == (
            ["cpu_share: Expected `float` >= 0.0; it was ignored"] if is_wrong else []
        )
        view = View(*await counted.coordinator.look(GroupId("orders")), counted.clock.at_ms)
        assert member_body(view, view.members[MemberId("m1")], frozenset()).get("cpu_share") == known
        assert (await scrape(counted)).get("batonpass_member_cpu_share{group=orders,member=m1}") == known


def test_every_gauge_of_groups_is_shown_somewhere() -> None:
    """So that no family is described and then forgotten, nor a number that members say of themselves."""
    scene = Scene()
    scene.declare(topology(6), max_warmup_replicas=1, balance_by="shadow", load_half_life_ms=1_000)
    scene.join("m1", max_disk_bytes=1_000)
    scene.settle()
    scene.join("m2")
    scene.obey("m2")
    for _ in range(3):
        scene.wait(1_000)
        said = running(input_lag=3, disk_bytes=70, load=0.2)
        scene.beat("m1", dict.fromkeys(scene.held("m1", Role.ACTIVE), said))
    assert {f"member_{name}" for name in OWN_NUMBERS} <= OF_MEMBERS.keys(), "OF_MEMBERS says what each number means"
    scene.beat("m1", numbers=dict.fromkeys(OWN_NUMBERS, 1))
    streams = Scene("streams")
    streams.do(StreamsRebalance(topology(1), {}, (StreamsProcess(InstanceId("p")),)))
    groups = [(one.group, one.soft) for one in (scene, streams)]
    gauges = GroupGauges(lambda: groups, lambda: scene.now_ms, scene.policy, members_max=10)
    gauges.look()
    shown = {family.name for family in gauges.collect() if family.samples}
    assert shown == {PREFIX + name for name in FAMILIES} | {f"batonpass_{name}" for name in OF_MEMBERS}


async def test_refused_rebalances_are_counted_by_group_whatever_group_there_is(counted: Api) -> None:
    """Protocol 14.8: of an application that has none yet, and of one that asks at a group of members that heartbeat."""
    name = "batonpass_group_refused_rebalances{group=%s}"
    await counted.declare()
    assert name % "orders" not in await scrape(counted)
    for group, times in (("orders", 1), ("app", 2)):
        for _ in range(times):
            assert (await counted.call("POST", f"/{group}/advice", b"{")).status_code == 422
    shown = await scrape(counted)
    assert (shown[name % "orders"], shown[name % "app"]) == (1, 2)
    assert shown["batonpass_group_health{group=app,level=trouble}"] == 1
    counted.clock.at_ms += 106_000
    assert not {name % "orders", name % "app"} & (await scrape(counted)).keys()


def test_changelogs_that_a_transaction_holds_up_are_counted() -> None:
    scene = ready_to_move()
    assert ("changelogs_held_up", (), 1) in list(add_up(scene.group, scene.soft))


def test_the_store_is_away_for_some_seconds_after_a_failure_or_until_a_commit() -> None:
    at_s = [100.0]
    watch = CommitWatch(monotonic=lambda: at_s[0])
    commit = Commit(GroupId("orders"), 1, 0, ())
    assert watch.away() == ""
    watch.store_failed(GroupId("orders"), "no connection")
    assert "no connection" in watch.away()
    watch.committed(commit, 1.0)
    assert watch.away() == ""
    watch.store_failed(GroupId("orders"), "no connection")
    at_s[0] += AWAY_S + 0.1
    assert watch.away() == ""
