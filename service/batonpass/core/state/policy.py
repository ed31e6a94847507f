"""What may be tuned: the config of a group, and the limits of a coordinator.

``GroupConfig`` uses Kafka's names and defaults where Kafka has them. Every field has a documented range. A value out of
range, or settings that contradict each other, are refused with every fault named, and never adjusted silently.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from fractions import Fraction
from typing import Final, TypeVar

from batonpass.core.state.errors import InvalidConfig
from batonpass.core.state.numbers import WHOLE_MAX

T = TypeVar("T")

LAG_UNBOUNDED: Final = WHOLE_MAX
"""An ``acceptable_recovery_lag`` of this size counts every readable copy as caught up (KIP-441)."""

_DAY_MS: Final = 86_400_000
_PERCENT: Final = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)%", re.ASCII)


class IsolationLevel(StrEnum):
    """How end offsets of changelogs are read."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class BalanceBy(StrEnum):
    """What a task weighs, and whether balance follows what members say of its load.

    ``SHADOW`` decides by the measured load and says what would move; the declared weights go on.
    """

    DECLARED = "declared"
    SHADOW = "shadow"
    MEASURED = "measured"


def _number(default: T, least: float, most: float) -> T:
    """Declare a numeric setting: its default, and the lowest and the highest value that is accepted."""
    return field(default=default, metadata={"range": (least, most)})


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings of one group (docs/settings.md). Durations are milliseconds, lags are records.

    Configs are stored with their settings in this order, so a setting that is new comes last.

    ``max_warmup_replicas`` and ``max_drain_warmups`` are a number of copies or a share of the stateful tasks, as in
    ``"10%"``, rounded up. ``acceptable_catchup_ms`` of None is off; ``suspect_timeout_ms``, ``newcomer_wait_ms`` and
    ``distrust_after`` of 0 are off.
    """

    acceptable_recovery_lag: int = _number(10_000, 0, LAG_UNBOUNDED)
    max_warmup_replicas: int | str = _number(2, 1, 100_000)
    num_standby_replicas: int = _number(0, 0, 1_000)
    probing_rebalance_interval_ms: int = _number(600_000, 1_000, _DAY_MS)
    session_timeout_ms: int = _number(45_000, 1_300, _DAY_MS)
    heartbeat_interval_ms: int = _number(3_000, 100, 3_600_000)
    rebalance_timeout_ms: int = _number(300_000, 100, _DAY_MS)
    rack_aware_tags: tuple[str, ...] = ()
    initial_rebalance_delay_ms: int = _number(3_000, 0, 3_600_000)
    rebalance_batch_ms: int = _number(50, 0, 60_000)
    rejoin_grace_ms: int = _number(300_000, 0, _DAY_MS)
    max_warmups_per_member: int = _number(2, 1, 100_000)
    max_drain_warmups: int | str = _number("10%", 1, 100_000)
    acceptable_catchup_ms: int | None = _number(None, 0, _DAY_MS)
    warmup_stall_timeout_ms: int = _number(300_000, 1_000, 7 * _DAY_MS)
    drain_timeout_ms: int = _number(1_800_000, 1_000, 7 * _DAY_MS)
    max_lost_share: float = _number(0.5, 0.0, 1.0)
    suspect_timeout_ms: int = _number(2_000, 0, 3_600_000)
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    kafka_heartbeats: bool = False
    kafka_streams: bool = False
    newcomer_wait_ms: int = _number(600_000, 0, 3_600_000)
    poison_members: int = _number(3, 1, 1_000)
    poison_window_ms: int = _number(600_000, 1_000, 7 * _DAY_MS)
    distrust_after: int = _number(2, 0, 1_000)
    application_id: str = ""
    cluster_id: str = ""
    report_interval_ms: int = _number(10_000, 0, 3_600_000)
    balance_by: BalanceBy = BalanceBy.DECLARED
    load_half_life_ms: int = _number(600_000, 1_000, _DAY_MS)
    load_imbalance: float = _number(0.25, 0.01, 100.0)
    load_patience_ms: int = _number(600_000, 1_000, _DAY_MS)
    load_cooldown_ms: int = _number(3_600_000, 60_000, 7 * _DAY_MS)
    other_assignor: str = ""
    max_heartbeats_per_s: int = _number(1_000, 1, 1_000_000)

    def warmup_budget(self, stateful_tasks: int) -> int:
        """Return how many extra copies the group may have at once, at least 1."""
        return max(1, _copies(self.max_warmup_replicas, stateful_tasks))

    def drain_budget(self, stateful_tasks: int) -> int:
        """Return how many extra copies may exist for drains at once. A share counts as at least 2."""
        least = 2 if isinstance(self.max_drain_warmups, str) else 1
        return max(least, _copies(self.max_drain_warmups, stateful_tasks))


RANGES: Final[Mapping[str, tuple[float, float]]] = {
    one.name: one.metadata["range"] for one in fields(GroupConfig) if one.metadata
}
"""The lowest and the highest accepted value of every numeric field. Shares lie within 0% and 100%."""

OF_AN_APPLICATION: Final = (
    "acceptable_recovery_lag",
    "max_warmup_replicas",
    "num_standby_replicas",
    "rack_aware_tags",
)
"""The settings of a group that a Kafka Streams application has too: its leader says them at each rebalance."""

WHOSE_GROUP: Final = ("application_id", "cluster_id")
"""The settings that keep a group from being taken for another application's."""

KAFKA_NAME_CHARS_MAX: Final = 255
RACK_TAGS_MAX: Final = 5
"""KIP-708 allows at most five tag keys."""
TAG_KEY_CHARS_MAX: Final = 20

_SHARES: Final = frozenset({"max_warmup_replicas", "max_drain_warmups"})
_DEFAULTS: Final[Mapping[str, object]] = {one.name: one.default for one in fields(GroupConfig)}


def _copies(setting: int | str, stateful_tasks: int) -> int:
    if isinstance(setting, int):
        return setting
    share = Fraction(setting[:-1]) * stateful_tasks / 100
    return -(-share.numerator // share.denominator)


def parse_config(wanted: Mapping[str, object], base: GroupConfig | None = None) -> GroupConfig:
    """Return ``base`` (None: the defaults) with the ``wanted`` settings.

    Raises:
        InvalidConfig: naming every unknown setting, every value of the wrong type or out of range, and every
            contradiction between settings, by path (``config.<name>``) and reason.
    """
    base = base or GroupConfig()
    faults: list[tuple[str, str]] = []
    values: dict[str, object] = {name: getattr(base, name) for name in _DEFAULTS}
    for name, value in wanted.items():
        if name not in values:
            faults.append((f"config.{name}", f"no such setting; known settings: {', '.join(_DEFAULTS)}"))
            continue
        if value == values[name] and type(value) is type(values[name]):
            continue  # What a group has it may keep, although an earlier version allowed more.
        reason, clean = _clean(name, value)
        if reason:
            faults.append((f"config.{name}", reason))
        else:
            values[name] = clean
    if not faults:
        faults = list(_contradictions(values))
    if faults:
        message = "the config is refused: " + "; ".join(f"{path}: {reason}" for path, reason in faults)
        raise InvalidConfig(message, errors=faults)
    return GroupConfig(**values)  # type: ignore[arg-type]


def within_ranges(wanted: Mapping[str, object]) -> dict[str, object]:
    """Return settings of a Kafka Streams application, brought within what a group can use.

    Kafka Streams takes every number, so the largest is "no limit" and one below zero is zero, and it may name a tag
    twice. What is of the wrong type stays, for ``parse_config`` to refuse.
    """
    clean = dict(wanted)
    for name, value in wanted.items():
        if type(value) is int and name in RANGES:
            least, most = RANGES[name]
            clean[name] = min(max(value, int(least)), int(most))
        elif name == "rack_aware_tags" and isinstance(value, (list, tuple)):
            clean[name] = [key for place, key in enumerate(value) if key != "" and key not in value[:place]]
    return clean


def _clean(name: str, value: object) -> tuple[str, object]:
    """Return what is wrong with the value ("" if nothing is), and the value as the config keeps it.

    The default says of what kind a setting is.
    """
    default = _DEFAULTS[name]
    if isinstance(default, tuple):
        return _clean_tags(value)
    if isinstance(default, StrEnum):
        known = [choice.value for choice in type(default)]
        return ("", type(default)(value)) if value in known else (f"must be one of {', '.join(known)}", None)
    if isinstance(default, str) and name not in RANGES:
        fits = isinstance(value, str) and len(value) <= KAFKA_NAME_CHARS_MAX and value.isprintable()
        return ("", value) if fits else (f"must be text of at most {KAFKA_NAME_CHARS_MAX} characters", None)
    if isinstance(default, bool):
        return ("", value) if isinstance(value, bool) else ("must be true or false", None)
    if default is None and value is None:
        return "", None
    if name in _SHARES and isinstance(value, str):
        matched = _PERCENT.fullmatch(value)
        if matched and 0 < Fraction(matched[1]) <= 100:
            return "", value
        return 'must be a number of copies or a share above "0%" and up to "100%"', None
    if isinstance(default, float):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return "must be a number", None
        value = float(value)
    elif isinstance(value, float) and value.is_integer():
        # JSON has one kind of number, so 2.0 is accepted as 2.
        value = int(value)
    elif isinstance(value, bool) or not isinstance(value, int):
        return "must be a whole number", None
    least, most = RANGES[name]
    if not least <= value <= most:
        return f"{value} is out of range; it must lie within {least} and {most}", None
    return "", value


def _clean_tags(value: object) -> tuple[str, object]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(key, str) and key for key in value):
        return "must be a list of tag keys", None
    if len(value) > RACK_TAGS_MAX or len(set(value)) != len(value):
        return f"must name at most {RACK_TAGS_MAX} keys, each of them once", None
    if any(len(key) > TAG_KEY_CHARS_MAX for key in value):
        return f"a tag key may have at most {TAG_KEY_CHARS_MAX} characters", None
    return "", tuple(value)


def _contradictions(values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    session, heartbeat = values["session_timeout_ms"], values["heartbeat_interval_ms"]
    least = 3 * heartbeat + 1_000  # type: ignore[operator]
    if session < least:  # type: ignore[operator]
        why = f"{session} leaves no room for three heartbeats of {heartbeat} ms and a second; make it at least {least}"
        yield "config.session_timeout_ms", why
    if values["kafka_streams"] and values["balance_by"] is not BalanceBy.DECLARED:
        why = "the members of a Kafka Streams application say nothing of their tasks' load; leave it declared"
        yield "config.balance_by", why


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits that hold for every group of one coordinator. Each is a setting of the service.

    ``coordinator_lease_ms`` is the longest time for which a coordinator may answer from memory without renewing its
    lease (L4). ``gone_retention_ms`` is how long the id of a departed member stays refused.
    """

    max_members: int = 10_000
    max_tasks: int = 200_000
    max_tasks_per_heartbeat: int = 20_000
    max_unnamed_changelogs: int = 16
    max_unassigned_reported: int = 200_000
    coordinator_lease_ms: int = 5_000
    gone_retention_ms: int = 2 * _DAY_MS
    check_laws: bool = True
