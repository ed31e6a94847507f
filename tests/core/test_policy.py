"""The config of a group: Kafka's defaults, documented ranges, and refusals that name every fault."""

from dataclasses import replace
from typing import get_args, get_type_hints

import pytest

from batonpass.core.state.errors import InvalidConfig
from batonpass.core.state.policy import (
    LAG_UNBOUNDED,
    RANGES,
    BalanceBy,
    GroupConfig,
    IsolationLevel,
    Policy,
    parse_config,
)

DAY_MS = 86_400_000
# A session timeout that every heartbeat interval within its range is compatible with, and the other way round.
FRACTIONS = {"max_lost_share", "load_imbalance"}
ROOM = {"session_timeout_ms": DAY_MS, "heartbeat_interval_ms": 100}


def faults(wanted: dict[str, object], base: GroupConfig | None = None) -> dict[str, str]:
    """Return what is refused, by path."""
    with pytest.raises(InvalidConfig) as refused:
        parse_config(wanted, base)
    assert all(reason in refused.value.detail for _, reason in refused.value.errors)
    return dict(refused.value.errors)


def test_every_number_has_a_range() -> None:
    numbers = {name for name, hint in get_type_hints(GroupConfig).items() if {int, float} & {hint, *get_args(hint)}}
    assert numbers == RANGES.keys()


def test_the_defaults_are_those_of_the_design() -> None:
    """The defaults are Kafka's where Kafka has them."""
    assert parse_config({}) == GroupConfig(
        acceptable_recovery_lag=10_000,
        max_warmup_replicas=2,
        num_standby_replicas=0,
        probing_rebalance_interval_ms=600_000,
        session_timeout_ms=45_000,
        heartbeat_interval_ms=3_000,
        rebalance_timeout_ms=300_000,
        rack_aware_tags=(),
        initial_rebalance_delay_ms=3_000,
        rebalance_batch_ms=50,
        rejoin_grace_ms=300_000,
        max_warmups_per_member=2,
        max_drain_warmups="10%",
        acceptable_catchup_ms=None,
        warmup_stall_timeout_ms=300_000,
        drain_timeout_ms=1_800_000,
        max_lost_share=0.5,
        suspect_timeout_ms=2_000,
        isolation_level=IsolationLevel.READ_COMMITTED,
        kafka_heartbeats=False,
        balance_by=BalanceBy.DECLARED,
        load_half_life_ms=600_000,
        load_imbalance=0.25,
        load_patience_ms=600_000,
        load_cooldown_ms=3_600_000,
    )


@pytest.mark.parametrize("name", sorted(RANGES))
def test_each_setting_takes_both_ends_of_its_range(name: str) -> None:
    for value in RANGES[name]:
        wanted: dict[str, object] = {**ROOM, name: value}
        if name == "heartbeat_interval_ms":
            wanted["session_timeout_ms"] = DAY_MS
        if name == "session_timeout_ms":
            wanted["heartbeat_interval_ms"] = 100
        assert getattr(parse_config(wanted), name) == value


@pytest.mark.parametrize("name", ["application_id", "cluster_id"])
def test_a_name_of_kafka_is_text_of_a_line(name: str) -> None:
    assert getattr(parse_config({name: "größe_1"}), name) == "größe_1"
    assert getattr(parse_config({name: ""}, parse_config({name: "a"})), name) == ""
    for value in (7, None, "a\nb", "a" * 256):
        assert faults({name: value}) == {f"config.{name}": "must be text of at most 255 characters"}


@pytest.mark.parametrize("name", sorted(RANGES))
def test_each_setting_refuses_what_lies_beyond_its_range(name: str) -> None:
    """Protocol 2.3."""
    least, most = RANGES[name]
    step = 0.01 if name in FRACTIONS else 1
    for value in (least - step, most + step):
        found = faults({**ROOM, name: value})
        assert list(found) == [f"config.{name}"]
        assert str(least) in found[f"config.{name}"]
        assert str(most) in found[f"config.{name}"]


@pytest.mark.parametrize("name", sorted(set(RANGES) - FRACTIONS))
@pytest.mark.parametrize("value", [True, 1.5, "7", [1], {}], ids=["bool", "fraction", "text", "list", "object"])
def test_a_whole_number_is_not_guessed_from_something_else(name: str, value: object) -> None:
    assert list(faults({name: value})) == [f"config.{name}"]


def test_a_whole_number_may_be_written_with_a_point() -> None:
    """JSON has one kind of number."""
    config = parse_config({"heartbeat_interval_ms": 3000.0, "max_warmup_replicas": 4.0})
    assert config == parse_config({"max_warmup_replicas": 4})
    assert isinstance(config.heartbeat_interval_ms, int)


@pytest.mark.parametrize("name", sorted(set(RANGES) - {"acceptable_catchup_ms"}))
def test_null_is_a_value_of_no_setting_but_the_catch_up_time(name: str) -> None:
    assert list(faults({name: None})) == [f"config.{name}"]
    assert parse_config({"acceptable_catchup_ms": None}).acceptable_catchup_ms is None
    set_before = GroupConfig(acceptable_catchup_ms=5_000)
    assert parse_config({"acceptable_catchup_ms": None}, set_before).acceptable_catchup_ms is None


@pytest.mark.parametrize("name", sorted(FRACTIONS))
@pytest.mark.parametrize("value", [True, "0.5", float("nan")])
def test_a_share_is_a_plain_number(name: str, value: object) -> None:
    assert list(faults({name: value})) == [f"config.{name}"]
    assert parse_config({"max_lost_share": 1}).max_lost_share == 1.0


@pytest.mark.parametrize("name", ["max_warmup_replicas", "max_drain_warmups"])
def test_budgets_may_be_shares_of_the_tasks(name: str) -> None:
    for share in ("100%", "0.5%", "33.333333%", "007%"):
        assert getattr(parse_config({name: share}), name) == share
    for wrong in ("0%", "101%", "-1%", "10", "%", "ten%", "1e1%", "٣%", "10% ", "0.0%"):
        assert list(faults({name: wrong})) == [f"config.{name}"], wrong


@pytest.mark.parametrize(
    ("setting", "tasks", "budget"),
    [
        (4, 1000, 4),
        ("10%", 100, 10),
        ("10%", 101, 11),
        ("10%", 0, 1),
        ("0.1%", 100, 1),
        ("33.4%", 10, 4),
        ("29%", 100, 29),
    ],
)
def test_the_warmup_budget_is_rounded_up_and_at_least_one(setting: int | str, tasks: int, budget: int) -> None:
    assert GroupConfig(max_warmup_replicas=setting).warmup_budget(tasks) == budget


@pytest.mark.parametrize(("setting", "tasks", "budget"), [("10%", 5, 2), ("10%", 100, 10), (1, 100, 1), (7, 3, 7)])
def test_the_drain_budget_as_a_share_is_at_least_two(setting: int | str, tasks: int, budget: int) -> None:
    """A smaller budget has to be named as a number."""
    assert GroupConfig(max_drain_warmups=setting).drain_budget(tasks) == budget


@pytest.mark.parametrize(
    "tags",
    [
        "zone",
        ["zone", 1],
        ["zone", ""],
        ["zone", "zone"],
        ["a", "b", "c", "d", "e", "f"],
        ["k" * 21],
        {"zone": "a"},
    ],
)
def test_rack_tags_are_a_short_list_of_different_keys(tags: object) -> None:
    """At most five keys of at most 20 characters (KIP-708)."""
    assert list(faults({"rack_aware_tags": tags})) == ["config.rack_aware_tags"]


def test_rack_tags_keep_their_order() -> None:
    assert parse_config({"rack_aware_tags": ["zone", "a", "k" * 20]}).rack_aware_tags == ("zone", "a", "k" * 20)


def test_heartbeats_over_kafka_are_asked_for_in_so_many_words() -> None:
    """The setting lets others speak for a group's members."""
    assert parse_config({"kafka_heartbeats": True}).kafka_heartbeats is True
    values: tuple[object, ...] = (1, 0, "true", "off", None, [])
    for value in values:
        assert faults({"kafka_heartbeats": value}) == {"config.kafka_heartbeats": "must be true or false"}


def test_the_isolation_level_is_one_of_two() -> None:
    assert parse_config({"isolation_level": "read_uncommitted"}).isolation_level is IsolationLevel.READ_UNCOMMITTED
    found = faults({"isolation_level": "serializable"})
    assert "read_committed, read_uncommitted" in found["config.isolation_level"]
    assert list(faults({"isolation_level": ["read_committed"]})) == ["config.isolation_level"]


def test_every_fault_is_named_at_once() -> None:
    found = faults({"nope": 1, "session_timeout_ms": "45s", "max_lost_share": 2})
    assert list(found) == ["config.nope", "config.session_timeout_ms", "config.max_lost_share"]
    assert "session_timeout_ms" in found["config.nope"]


@pytest.mark.parametrize(
    ("session_ms", "heartbeat_ms"), [(6_000, 1_500), (5_500, 1_500), (45_000, 3_000), (1_300, 100)]
)
def test_a_session_may_be_three_heartbeats_and_a_second(session_ms: int, heartbeat_ms: int) -> None:
    config = parse_config({"session_timeout_ms": session_ms, "heartbeat_interval_ms": heartbeat_ms})
    assert (config.session_timeout_ms, config.heartbeat_interval_ms) == (session_ms, heartbeat_ms)


def test_what_a_group_has_from_an_earlier_version_it_may_keep_and_not_choose_anew() -> None:
    base = GroupConfig(session_timeout_ms=1_003, heartbeat_interval_ms=1)
    same: dict[str, object] = {"session_timeout_ms": 1_003, "heartbeat_interval_ms": 1}
    assert parse_config({**same, "num_standby_replicas": 1}, base) == replace(base, num_standby_replicas=1)
    assert list(faults({"heartbeat_interval_ms": 2}, base)) == ["config.heartbeat_interval_ms"]
    assert list(faults(same)) == ["config.session_timeout_ms", "config.heartbeat_interval_ms"]


def test_a_session_too_short_for_its_heartbeats_is_a_contradiction() -> None:
    found = faults({"session_timeout_ms": 5_499, "heartbeat_interval_ms": 1_500})
    assert "5500" in found["config.session_timeout_ms"]
    # The contradiction may also come from one new setting beside an old one.
    assert list(faults({"heartbeat_interval_ms": 15_000})) == ["config.session_timeout_ms"]


def test_a_change_keeps_what_it_does_not_name() -> None:
    """Protocol 2.3."""
    base = GroupConfig(num_standby_replicas=1, acceptable_recovery_lag=7)
    assert parse_config({"num_standby_replicas": 2}, base) == GroupConfig(
        num_standby_replicas=2, acceptable_recovery_lag=7
    )


def test_an_unbounded_lag_is_within_range() -> None:
    """This lag counts every readable copy as caught up (KIP-441)."""
    assert parse_config({"acceptable_recovery_lag": LAG_UNBOUNDED}).acceptable_recovery_lag == LAG_UNBOUNDED


def test_gone_ids_are_remembered_for_at_least_a_day() -> None:
    """Protocol 3.5."""
    assert Policy().gone_retention_ms >= DAY_MS


def test_what_tasks_weigh_is_one_of_three_words() -> None:
    assert parse_config({"balance_by": "shadow"}).balance_by is BalanceBy.SHADOW
    for wrong in ("load", True, None, 1):
        assert faults({"balance_by": wrong}) == {"config.balance_by": "must be one of declared, shadow, measured"}


def test_the_members_of_a_kafka_streams_application_say_no_load() -> None:
    assert list(faults({"kafka_streams": True, "balance_by": "measured"})) == ["config.balance_by"]
    assert list(faults({"kafka_streams": True, "balance_by": "shadow", "session_timeout_ms": 1_300})) == [
        "config.session_timeout_ms",
        "config.balance_by",
    ]
