"""How fast a client may read from the broker (KIP-546), set by client name, because only restoring is to be slow here.

aiokafka can read quotas but not set them; this is the one request that it lacks.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Float64, Int16, Int32, Schema, String

CONSUMER_RATE = "consumer_byte_rate"


class AlterClientQuotasResponse(Response):  # type: ignore[misc]
    """The result of each change."""

    API_KEY = 49
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "entries",
            Array(
                ("error_code", Int16),
                ("error_message", String("utf-8")),
                ("entity", Array(("entity_type", String("utf-8")), ("entity_name", String("utf-8")))),
            ),
        ),
    )


class AlterClientQuotasStruct(RequestStruct):  # type: ignore[misc]
    """Changes of quotas, by the entity that they are for."""

    API_KEY = 49
    API_VERSION = 0
    RESPONSE_TYPE = AlterClientQuotasResponse
    SCHEMA = Schema(
        (
            "entries",
            Array(
                ("entity", Array(("entity_type", String("utf-8")), ("entity_name", String("utf-8")))),
                ("ops", Array(("key", String("utf-8")), ("value", Float64), ("remove", Boolean))),
            ),
        ),
        ("validate_only", Boolean),
    )


class AlterClientQuotas(Request[AlterClientQuotasStruct]):  # type: ignore[misc]
    """A request for changes of quotas of clients."""

    API_KEY = 49

    def __init__(self, rates: Mapping[str, float]) -> None:
        self._rates = rates

    def build(self, request_struct_class: type[AlterClientQuotasStruct]) -> Any:
        entries = [
            ([("client-id", name)], [(CONSUMER_RATE, rate, False)]) for name, rate in sorted(self._rates.items())
        ]
        return request_struct_class(entries, False)


async def limit_reading(admin: AIOKafkaAdminClient, clients: Iterable[str], bytes_per_s: float) -> None:
    """Limit how fast each client of these names may read.

    Raises:
        KafkaError: when the broker refuses.
    """
    request = AlterClientQuotas(dict.fromkeys(clients, bytes_per_s))
    answer = await admin._send_to_controller(request)  # noqa: SLF001 - there is no public way to send a request of one's own
    for code, message, _ in answer.entries:
        if code:
            raise for_code(code)(message)
