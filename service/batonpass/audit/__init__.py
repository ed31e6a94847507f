"""The nightly audit: an independent witness that reads what happened, and says whether the laws held and what it cost.

It reads the record log, never asks the service, and needs Spark (`pip install batonpass[audit]`). docs/architecture.md
names its files in the order in which one audit goes through them, with what is decided in each.
"""
