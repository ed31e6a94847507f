"""What aiokafka leaves behind is let go of after each test, as in ``tests/kafka``."""

from tests.kafka.conftest import _no_leftovers

__all__ = ["_no_leftovers"]
