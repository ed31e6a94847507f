"""The demonstration: a real job on a real broker, with real workers that come, go, crash and drain, and are measured.

`conductor` leads through it. `job` is what the workers do, `worker` and `load` are processes of their own, `place` has
the broker, the database and the coordinator, and `crew` the workers of one group. `phases` says what is done to them.
Meanwhile `outputs` reads what they write, `ledger` accounts for it, `reader` asks for single totals, and `view` shows
it; at the end there are `figures`, a `picture` and a `report`.
"""
