"""A Kafka Streams job on a real broker: what its assignors do when instances come and go (`make compare-streams`)."""
