"""What is deployed. A package, so that what its fixture runs ends with its tests, and not with the run."""
