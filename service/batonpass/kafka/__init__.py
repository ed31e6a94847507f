"""Kafka on the coordinator's side: a broker of one's own, changelog ends, partition counts, the protocol's topics."""
