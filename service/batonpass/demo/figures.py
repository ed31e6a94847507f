"""The figures of a run: one set for each phase, in the shape that `--json` prints."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from batonpass.demo.ledger import Account, Handover, Window
from batonpass.percentiles import nearest_rank


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, the 99th percentile and the maximum of some durations, in milliseconds; None if there are none."""

    p50: int | None
    p99: int | None
    max: int | None

    @classmethod
    def of(cls, values: Sequence[int]) -> "Spread":
        if not values:
            return cls(None, None, None)
        ranked = sorted(values)
        return cls(nearest_rank(ranked, 50), nearest_rank(ranked, 99), ranked[-1])


@dataclass(slots=True)
class PhaseFigures:
    """Results of one phase.

    ``moves`` are tasks with another owner at rest than before, summed over the phase's steps, and ``moves_needed`` the
    fewest that balance requires. ``handovers`` are changes of writer in the output. ``handovers_needed`` are those that
    the moves need; where a worker restarts whose tasks have standbys, also one to the standby and one back for each.
    """

    name: str
    group: str
    window: Window
    moves: int
    moves_needed: int
    handovers: list[Handover]
    handovers_needed: int
    rest_s: float
    restore_s: float
    restored_records: int
    moved: list[int]
    unmoved: list[int]
    quiet: list[int]
    unanswered_reads: int
    reads: int
    reads_by_copies: int

    def body(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "moves": self.moves,
            "moves_needed": self.moves_needed,
            "handovers": len(self.handovers),
            "rest_s": round(self.rest_s, 1),
            "restored_records": self.restored_records,
            "gap_moved_ms": asdict(Spread.of(self.moved)),
            "gap_unmoved_ms": asdict(Spread.of(self.unmoved)),
            "quiet_gap_ms": asdict(Spread.of(self.quiet)),
            "unanswered_reads": self.unanswered_reads,
        }

    def details(self) -> dict[str, Any]:
        return self.body() | {
            "group": self.group,
            "from_ms": self.window[0],
            "to_ms": self.window[1],
            "handovers_needed": self.handovers_needed,
            "restore_s": round(self.restore_s, 1),
            "reads": self.reads,
            "reads_by_standbys": self.reads_by_copies,
            "each_handover": [one._asdict() for one in self.handovers],
        }


@dataclass(slots=True)
class RunFigures:
    """Results of a whole run."""

    phases: list[PhaseFigures] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether every input record of every job had its effect exactly once."""
        return bool(self.accounts) and all(account.is_clean for account in self.accounts)

    def body(self) -> dict[str, Any]:
        return {
            "phases": [phase.body() for phase in self.phases],
            "records": {
                "in": sum(account.taken_in for account in self.accounts),
                "out": sum(account.put_out for account in self.accounts),
                "missing": sum(account.missing for account in self.accounts),
                "doubled": sum(account.doubled for account in self.accounts),
            },
        }
