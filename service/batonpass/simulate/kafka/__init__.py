"""Models of what Kafka does with tasks, for comparison: checked against the real program where there is one."""
