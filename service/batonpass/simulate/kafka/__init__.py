"""Models of what Kafka does with tasks, for comparison: held against the real thing where there is one."""
