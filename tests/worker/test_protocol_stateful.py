"""The member's half of L1, and progress, on a wire without manners (`under_fire`)."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.often import cases
from tests.worker.under_fire import MemberThatContinues, MemberUnderFire


@pytest.mark.parametrize("machine", [MemberUnderFire, MemberThatContinues])
def test_the_promises_hold_on_a_wire_without_manners(machine: type[MemberUnderFire]) -> None:
    """Safety under every fault at each step, and the assignment comes true once the faults stop."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=cases(150),
            stateful_step_count=80,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
