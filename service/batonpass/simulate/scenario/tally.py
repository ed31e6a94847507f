"""What is counted of a scenario by its records alone: moves, warmups and generations."""

from batonpass.core.decide import Decision
from batonpass.core.state import records as r
from batonpass.core.state.ids import MemberId
from batonpass.core.state.inputs import Input
from batonpass.core.state.model import Group, Role
from batonpass.core.state.soft import Soft


class Tally:
    """Counts from record to record; what is before ``begin_ms`` is left out.

    ``moves`` are changes of targets; ``targets`` has the present ones, by task.
    """

    def __init__(self, group: Group, *, begin_ms: int) -> None:
        self.moves = self.warmups = self.generations = 0
        self.targets: dict[str, MemberId | None] = {name: task.target.owner for name, task in group.tasks.items()}
        self._begin_ms = begin_ms

    def take(self, record: r.Record) -> None:
        match record:
            case r.TargetPlaced(changes=changes):
                owners: dict[str, MemberId | None] = {task: owner for task, (owner, _, _) in changes.items()}
                if record.at_ms >= self._begin_ms:
                    # A placement counts the moves that are still under way again.
                    changed = sum(owner not in (None, self.targets.get(task)) for task, owner in owners.items())
                    self.moves += min(record.moves, changed)
                    self.generations += bool(changes)
                self.targets.update(owners)
            case r.PlaceInherited(member_id=member_id, successor=successor):
                self.targets |= {task: successor for task, owner in self.targets.items() if owner == member_id}
            case r.AssignmentChanged(granted=granted) if record.at_ms >= self._begin_ms:
                self.warmups += sum(one.role is Role.WARMUP for one in granted.values())
            case _:
                pass

    def decided(self, _group: Group, _soft: Soft, _item: Input, decision: Decision, _now_ms: int) -> None:
        for record in decision.records:
            self.take(record)

    def minute(self, group: Group, soft: Soft, now_ms: int) -> None:
        """Do nothing: time alone moves nothing."""
