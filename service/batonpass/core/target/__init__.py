"""Where each task belongs: the target, when it is placed anew, and what a change of it may reach.

Begin with ``targets``.
"""
