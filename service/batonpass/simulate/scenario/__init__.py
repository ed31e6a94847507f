"""Scenarios that people write down, draw from a seed, or take from a day that was: played over the real core.

A scenario is a group at rest and what befalls it when. It is one value, whoever made it: a file (`reading`), a seed
(`drawing`), or the audit's what-if from the records of a day.
"""
