"""Everything at once for an hour, on this machine, to see that nothing grows: ``python -m tests.soak``."""
