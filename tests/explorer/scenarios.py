"""The small worlds that are taken through every order of events: who is there, what may happen, what may go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.explorer.likeness import Likeness
from tests.explorer.search import check_rest
from tests.explorer.world import UNIT_MS, World, Worker, Ids, empty

from batonpass.core.ids import GroupId
from batonpass.core.inputs import GroupDeclaration
from batonpass.core.model import Subtopology, Topology
from batonpass.worker.protocol import MemberSettings, OnLeaseLost

FENCED = MemberSettings(on_lease_lost=OnLeaseLost.CONTINUE, poll_wait_ms=86_400_000, request_timeout_ms=UNIT_MS)
UNFENCED = MemberSettings(on_lease_lost=OnLeaseLost.STOP, poll_wait_ms=86_400_000, request_timeout_ms=UNIT_MS)

CONFIG: Mapping[str, object] = {
    "heartbeat_interval_ms": UNIT_MS,
    "session_timeout_ms": 4 * UNIT_MS,
    "suspect_timeout_ms": UNIT_MS,
    "rebalance_timeout_ms": 3 * UNIT_MS,
    "rejoin_grace_ms": 2 * UNIT_MS,
    "initial_rebalance_delay_ms": 0,
    "rebalance_batch_ms": 0,
    "acceptable_recovery_lag": 0,
    "max_lost_share": 1.0,
    "probing_rebalance_interval_ms": 86_400_000,
    "warmup_stall_timeout_ms": 7 * 86_400_000,
    "drain_timeout_ms": 7 * 86_400_000,
    "max_warmup_replicas": 1,
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """``first`` are there and at rest when it begins; ``more`` may join. ``budget`` is what may go wrong, and time."""

    first: Mapping[str, MemberSettings]
    more: Mapping[str, MemberSettings] = field(default_factory=dict)
    tasks: int = 1
    stateless: int = 0
    standbys: int = 0
    budget: Mapping[str, int] = field(default_factory=dict)
    is_large: bool = False

    def world(self) -> World:
        """Return the world in which it begins."""
        world = empty(self.first, {})
        parts = [Subtopology("0", self.tasks)] if self.tasks else []
        parts += [Subtopology("1", self.stateless, stateful=False)] if self.stateless else []
        world.decide(0, GroupDeclaration(GroupId("g"), Topology(1, tuple(parts)), {**CONFIG, "num_standby_replicas": self.standbys}))
        like = Likeness()
        world = check_rest(world, like, set(), like.key(world))
        world.budget = self.budget
        world.workers |= {name: Worker(settings, Ids(name)) for name, settings in self.more.items()}
        return world


def named(settings: MemberSettings, name: str, *, takeover: bool = False) -> MemberSettings:
    """Return the settings of a worker with an instance id."""
    return replace(settings, instance_id=name, takeover=takeover)


SCENARIOS: Mapping[str, Scenario] = {
    "join": Scenario({"a": UNFENCED}, {"b": UNFENCED}, tasks=2),
    "join-wire": Scenario({"a": UNFENCED}, {"b": UNFENCED}, tasks=2, budget={"wire": 1}),
    "drain-a": Scenario({"a": UNFENCED, "b": UNFENCED}, budget={"a drains": 1}),
    "drain": Scenario({"a": UNFENCED, "b": UNFENCED}, budget={"a drains": 1, "b drains": 1}),
    "drain-wire": Scenario({"a": UNFENCED, "b": UNFENCED}, budget={"a drains": 1, "wire": 1}),
    "drain-time": Scenario({"a": UNFENCED, "b": UNFENCED}, budget={"a drains": 1, "units": 1}),
    "time": Scenario({"a": UNFENCED, "b": UNFENCED}, budget={"units": 5, "a is silent": 5}),
    "join-time": Scenario({"a": UNFENCED}, {"b": UNFENCED}, tasks=2, budget={"units": 1}),
}
