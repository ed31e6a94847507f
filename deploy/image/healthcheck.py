"""Exits with 0 where the server of this container answers as it should, else with 1.

    python3 healthcheck.py {BATONPASS|BATONPASS_DASHBOARD} PORT PATH

PORT is the one where no variable of the server, which begin with the first word, says another; so is the address. The
server is in this container: it is asked by no proxy, and whatever name its certificate has. One that wants to see a
certificate is shown its own.
"""

import os
import ssl
import sys
from urllib.request import HTTPSHandler, ProxyHandler, build_opener


def answers(server: str, port: str, path: str) -> bool:
    """Whether the server answers with a status of success."""
    host = os.environ.get(f"{server}_HOST", "").strip()
    host = "127.0.0.1" if host in {"", "::", "0.0.0.0"} else f"[{host}]" if ":" in host else host  # noqa: S104 - not to bind
    where = f"{host}:{os.environ.get(f'{server}_PORT', port)}{path}"
    certificate, key = (os.environ.get(f"{server}_TLS_{one}", "").strip() or None for one in ("CERTFILE", "KEYFILE"))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        if certificate:
            context.load_cert_chain(certificate, key, password="")
        ask = build_opener(ProxyHandler({}), HTTPSHandler(context=context)).open
        ask(f"{'https' if certificate else 'http'}://{where}", timeout=4).close()
    except OSError as error:
        sys.stderr.write(f"{where}: {error}\n")
        return False
    return True


if __name__ == "__main__":
    sys.exit(not answers(*sys.argv[1:]))
