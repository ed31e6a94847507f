"""The worker's side of the protocol, for programs that run tasks.

`protocol` is the state machine without I/O: what to stop and start in which order, and until when the lease holds.
Everything else here drives it over a wire. It imports nothing of the service but the ids and the codec.
"""
