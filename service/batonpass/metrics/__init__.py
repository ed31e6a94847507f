"""The metrics for Prometheus: one prefix, base units, labels with few values, and no series of anything that is gone.

``counts`` counts what happens (decisions, commits, calls), ``groups`` shows the state of the groups at a scrape, with
the sums of their members' reports, and ``audits`` shows the state of the nightly audits.
docs/metrics.md lists every name; a test holds the list and the code equal.
"""
