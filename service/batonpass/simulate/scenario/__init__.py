"""Scenarios from a file, a seed or the records of a day, played over the real core.

A scenario is a group at rest and what happens to it when. It is the same kind of value whether it comes from a file
(`reading`), a seed (`drawing`), or the audit's what-if.
"""
