"""Why a cluster lets nobody in. aiokafka says "unable to bootstrap", and keeps the reason to itself."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    UnsupportedSaslMechanismError,
)

from batonpass.worker.kafka.connection import KafkaConnection

KNOCK_S: Final = 5.0
LOGIN: Final = ("client_id", "security_protocol", "ssl_context")


async def in_words(error: Exception, connection: KafkaConnection) -> str:
    """Return what an error of the cluster says, and what a broker says to one more connection if that is why.

    The first address of the bootstrap servers that lets nobody in is the one that counts.
    """
    said = str(error) or repr(error)
    if not isinstance(error, KafkaConnectionError | NodeNotReadyError):
        return said
    options = connection.client_options()
    login = {name: value for name, value in options.items() if name in LOGIN or name.startswith("sasl_")}
    for host, port, _ in collect_hosts(options["bootstrap_servers"], randomize=False):
        why = await _knock(host, port, login)
        if why:
            return f"{host}:{port}: {why}"
    return said


async def _knock(host: str, port: int, login: dict[str, Any]) -> str:
    """Return why a broker does not let this side in; "" when it does."""
    try:
        async with asyncio.timeout(KNOCK_S):
            made = await create_conn(host, port, **login)
    except TimeoutError:
        return f"no answer within {KNOCK_S:.0f} s"
    except (KafkaError, OSError) as error:
        return _reason(error, login)
    made.close()
    return ""


def _reason(error: Exception, login: dict[str, Any]) -> str:
    cause = error.__cause__ or error
    match cause:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not believed ({cause.verify_message}); name the authority that it is from"
        case ssl.SSLError() if "ALERT" in str(cause):
            return f"it refused this side's certificate, or wants to see one ({cause})"
        case UnsupportedSaslMechanismError() | IllegalSaslStateError():
            return f"nobody logs in by {login['sasl_mechanism']} at this address"
        case OSError() | EOFError():
            # One of them may speak TLS while the other does not.
            return f"{str(cause) or 'it closed the connection'} (over {login.get('security_protocol', 'PLAINTEXT')})"
        case _:
            return str(error.args[0]) if error.args else repr(error)
