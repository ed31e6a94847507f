"""Worlds in virtual time over the real core and the real worker protocol.

In seeded worlds messages get lost, doubled and reordered, processes crash and clocks jump; the laws are checked after
every step. A seed says everything about a run, so that a failing one can be run again. Scenarios and comparisons run in
the same world without faults. The way through the files: docs/simulator.md.
"""
