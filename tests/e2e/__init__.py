"""Programs as users run them. A package, so that what its fixtures run ends with its tests, and not with the run."""
