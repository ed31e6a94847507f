"""What a seed stands for: a whole world, drawn before it starts."""

from dataclasses import fields
from random import Random

from batonpass.core.state.model import Topology
from batonpass.core.state.policy import RANGES, GroupConfig
from batonpass.simulate.faults import FAULTS
from batonpass.simulate.plan import Event, WireFaults, WorldPlan, draw_worker, seeded
from batonpass.simulate.tasks import simulated_subtopology


def draw(seed: int) -> WorldPlan:
    chance = seeded(seed, "group")
    topology = _topology(chance)
    growth_per_s = chance.choice((0, 2, 10))
    config = draw_config(seed, chance, growth_per_s)
    tasks = sum(one.partitions or 0 for one in topology.subtopologies)
    fenced = chance.choice(("stop", "stop", "continue", "mixed"))
    workers = tuple(
        draw_worker(seed, number, fenced=fenced, tasks=tasks) for number in range(chance.choice((1, 2, 3, 3, 4, 5, 6)))
    )
    wire = chance.choice(
        (
            WireFaults(silent_ends=0.1),
            WireFaults(lost=0.02, doubled=0.02, late=0.03, silent_ends=0.1),
            WireFaults(lost=0.10, doubled=0.05, late=0.10, silent_ends=0.1),
            WireFaults(lost=0.03, doubled=0.20, late=0.20, late_ms=8_000, silent_ends=0.1),
        )
    )
    chaos_ms = chance.choice((20_000, 45_000, 90_000))
    count = chance.randint(0, max(2, chaos_ms // 3_000))
    kinds, weights = list(FAULTS), [fault.weight for fault in FAULTS.values()]
    events = sorted(
        (chance.randint(1_000, chaos_ms), chance.choices(kinds, weights)[0], chance.randrange(1 << 30))
        for _ in range(count)
    )
    numbered = tuple(Event(number, at_ms, kind, one) for number, (at_ms, kind, one) in enumerate(events))
    return WorldPlan(
        seed,
        topology,
        config,
        workers,
        wire,
        numbered,
        chaos_ms,
        growth_per_s,
        clock_errors_ms=(0, 0, 0, 2, -2),
    )


def _topology(chance: Random) -> Topology:
    parts = []
    for number in range(chance.choice((1, 1, 2, 3))):
        stateful = number == 0 or chance.random() < 0.75
        partitions, weight = chance.choice((1, 2, 3, 4, 6)), chance.choice((1.0, 1.0, 1.0, 2.5))
        parts.append(simulated_subtopology(number, partitions, stateful=stateful, weight=weight))
    return Topology(1, tuple(parts))


def draw_config(seed: int, chance: Random, growth_per_s: int) -> dict[str, object]:
    """Return all settings of a group; times are short, as worlds are.

    A setting that is not named here gets its default or its least value; a switch gets either of its values.
    """
    heartbeat_ms = chance.choice((500, 1_000, 1_500))
    config: dict[str, object] = {
        # A copy of a changelog that grows is always a little behind; with 0 no such group would ever rest.
        "acceptable_recovery_lag": chance.choice((50, 100)) if growth_per_s else chance.choice((0, 50)),
        "max_warmup_replicas": chance.choice((1, 2, 2, 10, "50%")),
        "num_standby_replicas": chance.choice((0, 0, 1, 1, 2)),
        "probing_rebalance_interval_ms": chance.choice((2_000, 10_000)),
        "heartbeat_interval_ms": heartbeat_ms,
        "session_timeout_ms": 3 * heartbeat_ms + chance.choice((1_000, 2_500, 6_000)),
        "rebalance_timeout_ms": chance.choice((3_000, 10_000)),
        "initial_rebalance_delay_ms": chance.choice((0, 500)),
        "rebalance_batch_ms": chance.choice((0, 50)),
        "rejoin_grace_ms": chance.choice((0, 4_000, 15_000)),
        "max_warmups_per_member": chance.choice((1, 2, 10)),
        "warmup_stall_timeout_ms": chance.choice((5_000, 12_000)),
        "drain_timeout_ms": chance.choice((8_000, 30_000)),
        "max_lost_share": chance.choice((0.5, 0.5, 1.0)),
        "suspect_timeout_ms": chance.choice((0, 700, 2_000)),
        "newcomer_wait_ms": seeded(seed, "newcomers").choice((0, 4_000, 15_000)),
        "rack_aware_tags": ["zone", "rack"][: chance.randint(1, 2)] if chance.random() < 0.3 else [],
        "acceptable_catchup_ms": chance.choice((200, 2_000)) if chance.random() < 0.3 else None,
        # There is no Kafka in these worlds, and nobody measures.
        "isolation_level": "read_committed",
        "balance_by": "declared",
        "kafka_heartbeats": False,
        "kafka_streams": False,
        "application_id": "",
        "cluster_id": "",
        "other_assignor": "",
    }
    defaults = GroupConfig()
    for name in (one.name for one in fields(GroupConfig) if one.name not in config):
        default = getattr(defaults, name)
        values = (True, False) if isinstance(default, bool) else (default, RANGES[name][0])
        config[name] = seeded(seed, "config", name).choice(values)
    return config
