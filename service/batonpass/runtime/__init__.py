"""The runtime carries decisions out in the one safe order: persist, then change memory, then answer.

It handles what has arrived for a group as one batch, and knows asyncio, the codec and the core. What it needs from the
outside stands as protocols in `ports`, which the shells implement.
"""
