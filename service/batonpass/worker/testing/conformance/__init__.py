"""A kit that puts a client in any language through the protocol's hard cases.

`python -m batonpass.worker.testing.conformance -- COMMAND...` plays a coordinator over real HTTP, starts the command
for each case, and reports whether the client kept the protocol. The client under test finds in its environment:

- ``BATONPASS_URL`` and ``BATONPASS_GROUP``: where to join. ``BATONPASS_INSTANCE``: the instance id to join with.
- ``BATONPASS_SINK``: while a task runs, the client writes to ``PUT {sink}/{task}`` with the body
  ``{"fencing_token": n}``, five times a second or more. By these outputs the kit sees what really runs, whatever the
  client reports. A sink refuses an old token with 409.

It joins with ``on_lease_lost`` "stop", needs no time to restore, and leaves or restarts when it gets SIGTERM. `sample`
is such a client, made with the SDK. The kit does not see clocks that stand still while a machine sleeps, nor anything
that a client does with real state.
"""
