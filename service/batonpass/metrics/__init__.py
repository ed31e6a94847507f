"""What Prometheus sees: one prefix, base units, labels of few values, and no series of what is gone.

``counts`` counts what happens (decisions, commits, calls), ``groups`` shows how the groups stand when they are scraped,
and ``reports`` adds up for it what their members say.
docs/metrics.md lists every name; a test holds the list and the code equal.
"""
