"""Batonpass moves a task of stateful stream processing only after its new worker has rebuilt the task's state.

`core` decides, and is pure. `runtime` runs decisions one at a time for each group. `api`, `kafka` and `postgres` are
the shells around it. `worker` is the other side of the wire: the SDK. `simulate` and `audit` put the same core to the
test, before and after the fact. `cli` and `dashboard` are for people. Imports point down only.
"""

__version__ = "0.2.0"
