"""The decision core: two pure functions.

    decide(group, soft, inputs, now_ms, policy) -> Decision
    evolve(group, records) -> group

What it promises:

* it is pure: standard library values only, no clock, no I/O, no randomness; the same input gives the same decision
  (L10);
* it never makes a decision that breaks a law (``invariants``); the service checks before it appends, tests check after
  every step;
* every move, every move held back, and every look that changed nothing carries a typed reason (``reasons``).

What it may never do: read the time (``now_ms`` comes in), choose by the order of a set, or change a value that it was
given.

Four decisions, four files: ``placement`` (where tasks belong), ``handover`` (how the group gets there), ``reconcile``
(what one member does next), ``probing`` (when to look again).
"""
