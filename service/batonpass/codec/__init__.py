"""What crosses a boundary, and how: bodies of the protocol to the core's inputs and back, records to versioned JSON.

`bodies` says what a body looks like, `shape` finds every fault of one, `requests` turns bodies into inputs, `answers`
turns replies and errors into JSON, `records` keeps facts readable for ever. HTTP, Kafka, Postgres and the audit share
them, so that there is one truth about the wire. Nothing is decided here.
"""
