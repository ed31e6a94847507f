"""The decision core: two pure functions.

    decide(group, soft, inputs, now_ms, policy) -> Decision
    evolve(group, records) -> group

Callers may rely on this:

* The core is pure. It uses standard library values only, and no clock, I/O or randomness. The same input gives the
  same decision (L10).
* No decision breaks a law (``batonpass.invariants``). The service checks before each append; tests check after every
  step.
* Every move, every task that is held back, and every look that changes nothing carries a typed reason
  (``state.reasons``).

Core code must not read the time (``now_ms`` is an argument), choose by the order of a set, or change a value that it
was given.

Four decisions: ``target`` and ``placement`` (where tasks belong), ``handover`` (how the group gets there),
``handover.reconcile`` (what one member does next), ``handover.probing`` (when to look again). ``arrivals`` is what has
come in before them, ``state`` what they are about.
"""
