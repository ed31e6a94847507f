"""What the law of budgets adds up from change to change is what a pass over everything comes to."""

import pytest
from tests.core import luck
from tests.core.luck import Luck

from batonpass.core import invariants_spent
from batonpass.core.decide import Decision, decide
from batonpass.core.ids import GroupId
from batonpass.core.inputs import Input
from batonpass.core.invariants_spent import REMEMBERED, Spent, extra_copies, is_of_a_drain, spent
from batonpass.core.model import Group
from batonpass.core.policy import Policy
from batonpass.core.soft import Soft


def counted(group: Group) -> Spent:
    """Return the same by a look at every task that is not settled."""
    extra = {task_id: extra_copies(group, group.tasks[task_id]) for task_id in group.unsettled}
    drains = sum(count for task_id, count in extra.items() if is_of_a_drain(group, group.tasks[task_id]))
    return Spent(sum(extra.values()) - drains, drains)


@pytest.mark.parametrize("seed", range(6))
def test_the_sum_is_the_same_whatever_happened_since_the_last(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warmups that come and go, drains that begin and end, members that leave, settings that change."""
    seen: set[Spent] = set()

    def added_up(group: Group, soft: Soft, item: Input, now_ms: int, policy: Policy) -> Decision:
        found = decide(group, soft, item, now_ms, policy)
        if one.chance.random() < 0.7:
            assert spent(found.after) == counted(found.after)
        # A decision that was dropped is no reason to be wrong about the next one.
        assert spent(group) == counted(group)
        seen.add(spent(group))
        return found

    monkeypatch.setattr(luck, "decide", decide)
    one = Luck(seed)
    monkeypatch.setattr(luck, "decide", added_up)
    for _ in range(120):
        one.step()
    assert len(seen) > 1


def test_groups_that_were_not_looked_at_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered is bounded, whatever number of groups is checked."""
    lately: dict[GroupId, object] = {}
    monkeypatch.setattr(invariants_spent, "_lately", lately)
    for number in range(REMEMBERED + 3):
        spent(Group(GroupId(f"g{number}")))
    assert len(lately) == REMEMBERED
    assert GroupId("g0") not in lately
