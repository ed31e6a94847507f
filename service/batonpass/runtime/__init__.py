"""The runtime carries decisions out in the one safe order: persist, then change memory, then answer.

It handles the inputs of a group one at a time and knows asyncio and the core only. What it needs from the outside
stands as protocols in `ports`, which the shells implement.
"""
