"""Conversions at the boundary: bodies of the protocol to inputs of the core and back, records to versioned JSON.

`bodies` describes each body, `shape` finds every fault in one, `requests` turns bodies into inputs, `answers` turns
replies and errors into JSON, and `records` keeps facts readable for ever. HTTP, Kafka, Postgres and the audit all use
them, so the wire format is defined in one place. Nothing is decided here.
"""
