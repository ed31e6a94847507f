"""The tables of `make bench`, and the bars that the figures are held to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.benchmarks.groups import Shape
from tests.benchmarks.kafka import Calls
from tests.benchmarks.operations import OPERATIONS, Timed
from tests.benchmarks.sizes import CAUGHT_UP, CONFIRMED, QUIET, REPEATED, ROWS

TIMES_FASTER: Final[Mapping[Shape, float]] = {
    Shape(1_000, 1_000, 1): 15,
    Shape(1_000, 100, 50): 2,
    Shape(10_000, 100, 1): 7.5,
}
"""How many times faster than the model the sum of the four operations has to be, where it is worth a bar."""

TEN_TIMES: Final = (Shape(10_000, 100, 1), Shape(100_000, 1_000, 1))
GROWTH: Final = 15.0
"""By how much the sum of the four operations may grow from the first of these shapes to the second, which is too large
for the model."""

LAWS: Final = 0.2
LAWS_OF_THE_LARGEST: Final = 1 / 3
"""What checking the laws may add to the sum of the four operations, as a share of it. In the first placement of the
largest group each task is looked up six times in tables that no cache holds."""

FIRST_MS: Final = 1_000
"""How long the first generation of the second of these shapes may take as a whole decision."""

SAME: Final = 2.0
"""The largest group's cost over the smallest's up to which a cost counts as the same: caches and noise are in it."""

HANDOVER_MS: Final = 10
"""How long handing one task to a copy that is caught up may take, in a group of any size that is at rest otherwise."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The least of one shape: ours, the model's and Kafka's own, where those are run."""

    shape: Shape
    ours: Mapping[str, Timed]
    model: Mapping[str, float]
    kafka: Calls | None


@dataclass(frozen=True, slots=True)
class Bar:
    """One thing that has to hold, with what was seen."""

    what: str
    seen: str
    holds: bool


def shape_lines(weights: str, measured: Measured) -> list[str]:
    """Return the table of one shape: a row for each operation, and their sum."""
    lines = [
        f"{measured.shape}, {weights}: milliseconds of processor time, the least of all turns",
        f"{'':10}{'step':>10}{'whole':>10}{'model':>10}{'Kafka':>10}{'model/step':>12}{'model/whole':>12}{'laws':>8}",
    ]
    kafka = measured.kafka.warm if measured.kafka is not None else {}
    lines += [_row(name, measured.ours[name], measured.model.get(name), kafka.get(name)) for name in OPERATIONS]
    ours = measured.ours.values()
    total = Timed(sum(one.step for one in ours), sum(one.whole for one in ours), sum(one.laws for one in ours))
    lines.append(_row("sum", total, sum(measured.model.values()) or None, sum(kafka.values()) or None))
    if measured.kafka is not None:
        lines.append(f"Kafka's own class in a JVM that has not run it before: {sum(measured.kafka.cold.values()):.0f}")
    return lines


def _row(name: str, ours: Timed, model: float | None, kafka: float | None) -> str:
    return (
        f"{name:10}{ours.step:10.1f}{ours.whole:10.1f}{_number(model)}{_number(kafka)}"
        f"{_ratio(model, ours.step):>12}{_ratio(model, ours.whole):>12}{ours.laws / ours.whole:8.0%}"
    )


def _number(value: float | None) -> str:
    return f"{'-':>10}" if value is None else f"{value:10.1f}"


def _ratio(model: float | None, ours: float) -> str:
    return "-" if model is None else f"{model / ours:.1f}x"


def bars_of(weights: str, measured: Measured) -> list[Bar]:
    """Return the bars of one shape: for both views, and for the laws."""
    found = []
    for view in ("step", "whole"):
        spent = {name: getattr(timed, view) for name, timed in measured.ours.items()}
        wanted = TIMES_FASTER.get(measured.shape)
        if measured.model and wanted is not None:
            ratio = sum(measured.model.values()) / sum(spent.values())
            what = f"{measured.shape}, {weights}, {view}: {wanted:g} times faster than the model"
            found.append(Bar(what, f"{ratio:.1f} times", ratio > wanted))
        if measured.kafka is not None:
            ours, theirs = sum(spent.values()), sum(measured.kafka.warm.values())
            what = f"{measured.shape}, {weights}, {view}: the sum no slower than Kafka's own class, warm"
            found.append(Bar(what, f"{ours:.0f} ms, Kafka's {theirs:.0f}", ours <= theirs))
    if measured.shape == TEN_TIMES[1]:
        first = measured.ours["first"].whole
        what = f"{measured.shape}, {weights}: the first generation under {FIRST_MS} ms as a whole decision"
        found.append(Bar(what, f"{first:.0f} ms", first < FIRST_MS))
    at_most = LAWS_OF_THE_LARGEST if measured.shape == TEN_TIMES[1] else LAWS
    laws = sum(one.laws for one in measured.ours.values()) / sum(one.whole for one in measured.ours.values())
    what = f"{measured.shape}, {weights}: the laws take at most {at_most:.0%} of a decision"
    return [*found, Bar(what, f"{laws:.0%}", laws <= at_most)]


def growth_bars(weights: str, timed: Mapping[Shape, Measured]) -> list[Bar]:
    """Return the bars about ten times the tasks on ten times the members, for both views, if both were measured."""
    if not timed.keys() >= {*TEN_TIMES}:
        return []
    found = []
    for view in ("step", "whole"):
        small, large = (sum(getattr(one, view) for one in timed[shape].ours.values()) for shape in TEN_TIMES)
        what = f"{TEN_TIMES[1]}, {weights}, {view}: at most {GROWTH:g} times the cost of {TEN_TIMES[0]}"
        found.append(Bar(what, f"{large / small:.1f} times", large <= GROWTH * small))
    return found


def size_lines(timed: Mapping[Shape, Mapping[str, float]]) -> list[str]:
    """Return the table of what must not grow with the group, in microseconds, and the last over the first."""
    lines = [
        "What must not grow with the group: microseconds of processor time, means",
        f"{'':22}" + "".join(f"{shape.tasks:>9,} x {shape.members:<7,}" for shape in timed) + "  last/first",
    ]
    for row in ROWS:
        values = [figures[row] * 1000 for figures in timed.values()]
        cells = "".join(f"{value:12.0f}{'':7}" for value in values)
        lines.append(f"{row:22}{cells}{values[-1] / values[0]:9.2f}x")
    return lines


def size_bars(timed: Mapping[Shape, Mapping[str, float]]) -> list[Bar]:
    """Return the bars about growth, of the largest group against the smallest."""
    ordered = list(timed.values())
    first, last = ordered[0], ordered[-1]
    quiet = max(last[row] / first[row] for row in (QUIET, REPEATED))
    handover_ms = last[CAUGHT_UP] + last[CONFIRMED]
    return [
        Bar("a heartbeat that changes nothing costs the same in any group", f"{quiet:.2f} times", quiet < SAME),
        Bar(
            f"handing over one caught-up task under {HANDOVER_MS} ms",
            f"{handover_ms:.2f} ms",
            handover_ms < HANDOVER_MS,
        ),
    ]


def beginning_lines(timed: Mapping[Shape, tuple[float, float]]) -> list[str]:
    """Return the table of what a group costs as it begins, in microseconds a member."""
    return [
        "A group begins: microseconds of processor time a member, means",
        f"{'':22}{'join':>12}{'first word':>12}",
        *(
            f"{shape.tasks:>9,} x {shape.members:<10,}{join * 1000:12.0f}{word * 1000:12.0f}"
            for shape, (join, word) in timed.items()
        ),
    ]


def describing_lines(shape: Shape, found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the table of what the API asks of a group of which much is still to come, in milliseconds."""
    names = [name for row in list(found.values())[:1] for name in row]
    return [
        f"Describing {shape} with much still to come: milliseconds of processor time, medians",
        f"{'':12}" + "".join(f"{name:>24}" for name in names),
        *(f"{when:12}" + "".join(f"{row[name]:24.0f}" for name in names) for when, row in found.items()),
    ]


def bar_lines(bars: Sequence[Bar]) -> list[str]:
    """Return every bar, and whether it holds."""
    return ["Bars", *(f"  {'holds ' if bar.holds else 'MISSED'}  {bar.what}: {bar.seen}" for bar in bars)]
