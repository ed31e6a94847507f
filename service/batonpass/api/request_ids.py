"""The id under which a request, its log lines and its records are found again."""

from __future__ import annotations

import itertools
import re
import secrets
from typing import Final

HEADER: Final = b"x-request-id"
_GIVEN: Final = re.compile(rb"[\x21-\x7e]{1,128}")
# https://www.w3.org/TR/trace-context: version, trace id, parent id, flags
_TRACE: Final = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_NO_TRACE: Final = b"0" * 32


class RequestIds:
    """Takes the id that a caller has given, or makes one that no other process makes."""

    def __init__(self) -> None:
        self._start = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def of(self, request_id: bytes | None, traceparent: bytes | None) -> str:
        """Return ``X-Request-Id``, else the trace id of ``traceparent``, else an id of our own.

        An id that is too long, or holds a blank or anything unprintable, counts as none.
        """
        if request_id is not None and _GIVEN.fullmatch(request_id):
            return request_id.decode()
        if traceparent is not None and (trace := _TRACE.match(traceparent)) and trace[1] != _NO_TRACE:
            return trace[1].decode()
        return f"{self._start}-{next(self._numbers):x}"
