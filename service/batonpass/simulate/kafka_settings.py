"""How a group of Kafka consumers or Kafka Streams processes is configured: the arms of a comparison."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from batonpass.simulate import eager, kip441
from batonpass.simulate.kip441 import Assignment, ClientState, Kip441Config, TaskSet

Assignor = Callable[[Iterable[ClientState], TaskSet, Kip441Config], Assignment]
"""What decides in a rebalance: `kip441.assign`, `eager.assign`."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How the group is configured, under Kafka's names and with Kafka's defaults.

    `rebalance_timeout_ms` is `max.poll.interval.ms`. `rejoin_ms` is what a rebalance takes beyond waiting for
    heartbeats and sessions: to revoke, commit, rejoin and sync.
    """

    assignor: Kip441Config = field(default_factory=Kip441Config)
    assign: Assignor = kip441.assign
    cooperative: bool = True
    probing_rebalance_interval_ms: int = 600_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000
    state_cleanup_delay_ms: int = 600_000
    leave_on_close: bool = False
    static_membership: bool = False
    rejoin_ms: int = 500

    def with_standbys(self, count: int) -> "KafkaSettings":
        """The same with so many standbys of every task."""
        return replace(self, assignor=replace(self.assignor, num_standby_replicas=count))


KAFKA_DEFAULTS = KafkaSettings()
"""Kafka Streams as it comes: two warm-ups, a look every ten minutes."""

KAFKA_TUNED = KafkaSettings(assignor=Kip441Config(max_warmup_replicas=20), probing_rebalance_interval_ms=60_000)
"""Kafka Streams with twenty warm-ups, and a look every minute, which is as often as Kafka allows."""

EAGER = KafkaSettings(assign=eager.assign, cooperative=False, leave_on_close=True, state_cleanup_delay_ms=2**62)
"""Plain consumers: everybody stops at every rebalance, tasks are dealt out anew, closing says goodbye.

Nobody deletes state that is left on a disk, which favours this arm: a task that returns restores only what it missed.
"""
