"""The small worlds that are taken through every order of events: who is there, what may happen, what may go wrong."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.explorer.likeness import Likeness
from tests.explorer.moves import after, moves
from tests.explorer.search import check_rest
from tests.explorer.world import UNIT_MS, Ids, Worker, World, empty

from batonpass.core.state.ids import GroupId
from batonpass.core.state.inputs import GroupDeclaration
from batonpass.core.state.model import Subtopology, Topology
from batonpass.worker.protocol import MemberSettings, OnLeaseLost

FENCED = MemberSettings(on_lease_lost=OnLeaseLost.CONTINUE, poll_wait_ms=86_400_000, request_timeout_ms=UNIT_MS)
UNFENCED = MemberSettings(on_lease_lost=OnLeaseLost.STOP, poll_wait_ms=86_400_000, request_timeout_ms=UNIT_MS)

CONFIG: Mapping[str, object] = {
    "heartbeat_interval_ms": UNIT_MS,
    "session_timeout_ms": 3 * UNIT_MS + 1_000,
    "suspect_timeout_ms": UNIT_MS,
    "rebalance_timeout_ms": 2 * UNIT_MS,
    "rejoin_grace_ms": 2 * UNIT_MS,
    "initial_rebalance_delay_ms": 0,
    "rebalance_batch_ms": 0,
    "acceptable_recovery_lag": 0,
    "max_lost_share": 1.0,
    "newcomer_wait_ms": 2 * UNIT_MS,
    "probing_rebalance_interval_ms": 86_400_000,
    "warmup_stall_timeout_ms": 7 * 86_400_000,
    "drain_timeout_ms": 7 * 86_400_000,
    "max_warmup_replicas": 1,
    "poison_window_ms": 4 * UNIT_MS,
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """``first`` are there and at rest at first; ``more`` may join. ``budget`` is what may go wrong, and time.

    It ``begins`` with moves of these words, which are paid for from the budget.
    """

    first: Mapping[str, MemberSettings]
    more: Mapping[str, MemberSettings] = field(default_factory=dict)
    tasks: int = 1
    stateless: int = 0
    standbys: int = 0
    begins: tuple[str, ...] = ()
    budget: Mapping[str, int] = field(default_factory=dict)
    is_large: bool = False

    def world(self) -> World:
        """Return the world in which it begins."""
        world = empty(self.first, {})
        parts = [Subtopology("0", self.tasks)] if self.tasks else []
        parts += [Subtopology("1", self.stateless, stateful=False)] if self.stateless else []
        world.decide(
            0,
            GroupDeclaration(
                GroupId("g"), Topology(1, tuple(parts)), {**CONFIG, "num_standby_replicas": self.standbys}
            ),
        )
        like = Likeness()
        world = check_rest(world, like, set(), like.key(world))
        world.budget = self.budget
        world.workers |= {name: Worker(settings, Ids(name)) for name, settings in self.more.items()}
        for words in self.begins:
            world = after(world, next(move for move in moves(world) if move.words == words))
        return world


def named(settings: MemberSettings, name: str, *, takeover: bool = False) -> MemberSettings:
    """Return the settings of a worker with an instance id."""
    return replace(settings, instance_id=name, takeover=takeover)


NUMBERS = Path(__file__).with_name("numbers.json")
"""How many worlds each scenario has, how many ways lead between them, and how long the longest of the shortest is."""


def pinned() -> dict[str, list[int]]:
    """Return the numbers that are written down."""
    return json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}


def write(name: str, numbers: list[int]) -> None:
    """Write the numbers of a scenario down."""
    known = pinned() | {name: numbers}
    lines = [f'  "{each}": {known[each]}' for each in SCENARIOS if each in known]
    NUMBERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


PAIR = {"a": UNFENCED, "b": UNFENCED}
FENCED_PAIR = {"a": FENCED, "b": FENCED}

SCENARIOS: Mapping[str, Scenario] = {
    "join": Scenario({"a": UNFENCED}, {"b": UNFENCED}, tasks=2, budget={"crashes": 1}),
    "join-many": Scenario({"a": UNFENCED}, {"b": UNFENCED}, tasks=4, is_large=True),
    "drains": Scenario(PAIR, budget={"a drains": 1, "b drains": 1}),
    "wire": Scenario(PAIR, budget={"a drains": 1, "wire": 1}),
    "two-coordinators": Scenario(PAIR, budget={"a drains": 1, "takeovers": 1}),
    "silence": Scenario(PAIR, budget={"units": 3, "a is silent": 3}),
    "restart": Scenario({"a": named(UNFENCED, "a"), "b": UNFENCED}, budget={"a restarts": 1, "units": 2}),
    "out-of-memory": Scenario(
        {"a": UNFENCED, "b": named(UNFENCED, "b", takeover=True)}, tasks=2, budget={"b out of memory": 2}
    ),
    "failing": Scenario(PAIR, standbys=1, budget={"a fails": 1, "b fails": 1}),
    "stateless": Scenario(PAIR, tasks=0, stateless=1, budget={"a drains": 1, "a dies": 1}),
    "standby": Scenario(FENCED_PAIR, standbys=1, budget={"a drains": 1, "a dies": 1}),
    "suspicion": Scenario(FENCED_PAIR, standbys=1, budget={"a breaks": 1, "units": 1, "a is silent": 1}, is_large=True),
    "join-wire": Scenario({"a": UNFENCED}, {"b": UNFENCED}, tasks=2, budget={"wire": 1}, is_large=True),
    "overdue-beside-drain": Scenario(
        PAIR | {"c": UNFENCED},
        begins=("the coordinator looks what is due", "time passes"),
        budget={"a drains": 1, "c is silent": 1, "units": 2},
        is_large=True,
    ),
}
