"""The yardstick: the least that an ASGI application on uvicorn can do with a call. Run as a process of its own.

It reads the body and answers as many bytes as the service does to a heartbeat; it decides, checks and remembers
nothing. A long-poll waits until a group, whichever, is deleted.
"""

import asyncio
import sys
from typing import Any

import uvicorn

ANSWER = (
    b'{"member_id":"m00000","seq":118,"member_epoch":13,"generation":9,"heartbeat_interval_ms":3000,'
    b'"session_timeout_ms":45000,"acceptable_recovery_lag":10000,"acceptable_catchup_ms":null,"report":null,'
    b'"assignment":null,"status":[]}'
)
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]

deleted = asyncio.Event()


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer everything alike, long-polls when a group is deleted."""
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    if scope["method"] == "DELETE":
        deleted.set()
        deleted.clear()
    elif scope["path"].endswith("/assignment"):
        await deleted.wait()
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})


def main() -> None:
    """Serve on the port that is the first argument."""
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="warning",
        access_log=False,
        lifespan="off",
        loop="uvloop",
    )


if __name__ == "__main__":
    main()
