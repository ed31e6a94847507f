"""The core decides: state, an input and the time go in; records, a reply, a wake-up time and reasons come out.

Nothing here reads a clock, draws a random number, logs, waits or touches the outside world, and nothing outside the
standard library is imported, so that the service, the simulator, the dry run and the audit all run this same code and
come to the same decision, byte for byte.
"""
