"""What Prometheus sees: one prefix, base units, labels of few values, and no series of what is gone.

``counts`` counts what happens (decisions, commits, calls), ``groups`` shows how the groups stand when they are scraped,
with the sums of what their members say, and ``audits`` shows how the nightly audits stand.
docs/metrics.md lists every name; a test holds the list and the code equal.
"""
