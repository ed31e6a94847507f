"""What an audit's results read as, the same in its report, in the dashboard and in commands: measures, and advice."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from batonpass.core.state.durations import DASH, duration

_At = TypeVar("_At")

MEASURES: Final[Mapping[str, str]] = {
    "availability": "available",
    "downtime_ms": "downtime",
    "longest_unowned_ms": "longest without an owner",
    "handovers": "handovers",
    "failovers": "failovers",
    "cold_starts": "cold starts",
    "members_max": "members",
    "tasks_max": "tasks",
    "records": "records",
    "moves": "moves",
    "lower_bound": "fewest moves possible",
    "excess_moves": "moves beyond the fewest",
    "warmups": "warmups",
    "wasted_warmups": "wasted warmups",
    "probes": "probes",
    "futile_probes": "futile probes",
    "flapping_members": "flapping members",
    "balance_mean": "mean imbalance",
    "balance_worst": "worst imbalance",
    "load_imbalance": "hottest above average",
    "hot_ms": "too hot",
    "load_moves": "moves for load",
    "generations": "generations",
}
"""The measures of a group's day, in words, the most informative first."""


def measured(measure: str, value: float | None) -> str:
    """Return the value of a measure as it is shown."""
    if measure == "availability":
        return share(value)
    if measure == "load_imbalance" and value is not None:
        return f"{value:.0%}"
    return duration(value) if measure.endswith("_ms") else number(value)


def share(value: float | None) -> str:
    """Return a share as a percentage with as many nines as it has: `99.9 %`, `99.9994 %`; 1 alone is `100 %`."""
    if value is None:
        return DASH
    if value >= 1:
        return "100 %"
    for digits in range(1, 8):
        said = f"{value * 100:.{digits}f}"
        # A share below 1 is never shown as 100 %, and two figures after the nines are enough.
        if float(said) < 100 and len(said.partition(".")[2].lstrip("9")) >= 1:
            return f"{said.removesuffix('0') if said.endswith('90') else said} %"
    return "> 99.9999999 %"


def number(value: float | None) -> str:
    """Return a number: whole ones with separators, others with three figures."""
    if value is None:
        return DASH
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.3g}"


def amount(count: int, one: str) -> str:
    """Return a number of things, in words that fit it: "1 group", "1,204 records", "no notices"."""
    return f"1 {one}" if count == 1 else f"{f'{count:,}' if count else 'no'} {one}s"


def listed(names: Sequence[str]) -> str:
    """Return names in a row: "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def times_of(severity: str, sequences: Sequence[int], at: Sequence[_At]) -> Sequence[_At]:
    """Return when a finding was so, of the instants ``at`` beside the records that prove it, in their order.

    A law is broken from the last of these records on, what is lawful lasts from the first one on.
    """
    return at[min(len(sequences), len(at)) - 1 :] if severity == "fatal" else at


class Advice(NamedTuple):
    """What to set for groups for which that is the same; ``change`` is empty where nothing is to be changed.

    ``expected`` is what the simulated day came to, summed over the groups. ``sure`` has the confidence of each.
    """

    groups: str
    change: str
    expected: str
    sure: Mapping[str, str]

    @property
    def sentence(self) -> str:
        """All but how sure it is."""
        if not self.change:
            return f"Keep the settings of {self.groups}: none that was tried is better."
        return f"Change {self.change}. In the simulation of the day, {self.expected}."


def advised(recommendations: Mapping[str, Mapping[str, Any]]) -> list[Advice]:
    """Return what to change, by group as an audit stores it, in words; what changes nothing comes last."""
    alike: dict[str, dict[str, Mapping[str, Any]]] = {}
    for group, one in recommendations.items():
        now, better = one["present"]["settings"], one["recommended"]["settings"]
        changed = [name for name in sorted(better) if better[name] != now.get(name, better[name])]
        change = ", ".join(f"{name} from {now[name]} to {better[name]}" for name in changed)
        alike.setdefault(change, {})[group] = one
    return [
        Advice(
            listed(list(some)),
            change,
            _expected(list(some.values())),
            {name: some[name]["confidence"] for name in some},
        )
        for change, some in sorted(alike.items(), key=lambda each: not each[0])
    ]


def _expected(some: Sequence[Mapping[str, Any]]) -> str:
    """Return what to expect of a change, summed over groups; what one of them does not know is left out."""
    from rich.filesize import decimal  # noqa: PLC0415 - Spark's executors import this module, and lack rich

    said = []
    for name, what, write in (
        ("downtime_ms", "downtime", duration),
        ("waiting_ms", "the time of tasks away from their target", duration),
        ("moves", "the number of moves", number),
        ("bytes", "what is copied", lambda size: decimal(int(size))),
    ):
        was, better = ([one[side].get(name) for one in some] for side in ("present", "recommended"))
        if None not in (*was, *better) and sum(was) != sum(better):
            said.append(f"{what} goes from {write(sum(was))} to {write(sum(better))}")
    return ", ".join(said) or "that costs nothing"
