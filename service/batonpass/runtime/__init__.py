"""The runtime carries decisions out in the one safe order: persist, then change memory, then answer.

It handles all inputs that wait for a group as one batch. It depends on asyncio, the codec and the core. Everything else
that it needs is a protocol in `ports`, which the shells implement.
"""
