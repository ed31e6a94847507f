"""Simulated days in a database, as a service would have left them: for tests, benchmarks, and people who try it out.

The decisions are the real core's, the rows those that the service writes; only time, members and disks are simulated.
"""
