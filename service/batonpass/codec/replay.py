"""Decide a logged decision again: the same input gives the same decision, byte for byte (L10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batonpass.codec.traces import Trace, soft_after
from batonpass.core.decide import decide

if TYPE_CHECKING:
    from batonpass.core.decide import Decision
    from batonpass.core.model import Group
    from batonpass.core.soft import Soft


def replay(group: Group, traced: Soft, trace: Trace) -> tuple[Decision, Soft]:
    """Return the decision that the trace leads to, and the soft state that it was made on.

    ``group`` is what the first ``trace.version`` records add up to, ``traced`` the soft state that the trace before was
    made on (empty for the first one).
    """
    soft = soft_after(traced, trace.soft)
    return decide(group, soft, trace.inputs, trace.now_ms, trace.policy), soft
