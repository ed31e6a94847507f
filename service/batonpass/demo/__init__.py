"""The demonstration: a real job on a real broker, with real workers that come, go, crash and drain, and are measured.

`demo_run` runs it from beginning to end, phase by phase. `job` is what the workers do. `worker` and `load` are separate
processes. `infrastructure` is the broker, the database and the coordinator; `group` makes calls to the coordinator, and
`workers` are those of one group. An `experiment` is one job with all of these. Meanwhile `outputs` reads what the
workers write, `ledger` accounts for it, `reader` asks for single totals, and `view` shows it; at the end there are
`figures`, a `picture` and a `report`.
"""
