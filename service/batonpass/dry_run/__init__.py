"""Dry runs: snapshots, plans and what-ifs, which change nothing."""
