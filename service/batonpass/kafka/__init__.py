"""Kafka on the coordinator's side: a local broker, changelog ends, partition counts, the protocol's topics."""
