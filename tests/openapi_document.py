"""docs/openapi.json, as it follows from the routes; run as a module, it writes it.

python -m tests.openapi_document
"""

import json
from pathlib import Path

from fastapi import FastAPI

from batonpass.api import openapi
from batonpass.api.app import ROUTERS

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "openapi.json"


def text() -> str:
    """Return the document as a coordinator of this version serves it."""
    app = FastAPI()
    for router in ROUTERS:
        app.include_router(router)
    return json.dumps(openapi.document(app.routes), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(text())
