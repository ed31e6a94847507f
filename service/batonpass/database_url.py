"""The URL of a database, read once for every command, whichever driver then connects.

The service speaks to Postgres through asyncpg, the audit through libpq. Of libpq's URLs
(https://www.postgresql.org/docs/current/libpq-connect.html) this takes what both carry out alike, and refuses the rest
by name, so that no option means something in one command and nothing in another. docs/postgres.md lists what it takes.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import quote, unquote, urlsplit

from batonpass.variables import variable

FORM: Final = "postgresql://user:password@host:port/database"
SCHEME: Final = re.compile(r"postgres(?:ql)?(?:\+\w+)?")
PLACES: Final = ("host", "port", "user", "password", "dbname")
"""What may stand before the question mark or behind it; what stands behind it counts."""

SECRETS: Final = frozenset({"password", "sslpassword"})
FILES: Final = ("passfile", "sslcert", "sslkey", "sslrootcert", "sslcrl")
WORDS: Final[Mapping[str, Sequence[str]]] = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "sslnegotiation": ("postgres", "direct"),
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
    "client_encoding": ("utf8", "utf-8", "auto"),
    # The service's driver has none of these. It is let pass what asks for nothing.
    "channel_binding": ("disable", "prefer"),
    "gssencmode": ("disable", "prefer"),
    "load_balance_hosts": ("disable",),
}
"""The options that have a fixed set of values, and those of them that both drivers carry out."""

FREE: Final = (
    "application_name",
    "connect_timeout",
    "krbsrvname",
    "options",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslpassword",
)
OPTIONS: Final = frozenset({*FREE, *FILES, *WORDS})
VARIABLES: Final[Mapping[str, str]] = {
    "dbname": "PGDATABASE",
    "krbsrvname": "PGKRBSRVNAME",
    "host": "PGHOST",
    "password": "PGPASSWORD",
    "port": "PGPORT",
    "ssl_max_protocol_version": "PGSSLMAXPROTOCOLVERSION",
    "ssl_min_protocol_version": "PGSSLMINPROTOCOLVERSION",
    "sslmode": "PGSSLMODE",
    "sslnegotiation": "PGSSLNEGOTIATION",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
    "user": "PGUSER",
}
"""From which of libpq's variables is taken what a URL leaves out."""

KEEPALIVES: Final = {"idle": 60, "interval": 10, "count": 3}
"""A server that is gone without a word is noticed after 90 s; by the system's settings it would be two hours. And what
lies in between, as a load balancer, does not forget a connection on which nothing is said."""

DEFAULTS: Final = {"sslmode": "prefer", "sslnegotiation": "postgres", "target_session_attrs": "any"}
"""What is done where a variable is empty, which the drivers would take for a word that is wrong."""

FILE_VARIABLES: Final = frozenset({"PGPASSFILE", "PGSSLCERT", "PGSSLCRL", "PGSSLKEY", "PGSSLROOTCERT"})
"""Those that count too, and that the drivers read: which files are wanted depends on what the server asks for."""
PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """A URL of Postgres. ``hosts`` are host names, addresses or folders of sockets, each with its port if it has one.

    Without hosts, a user or a database the drivers have defaults of their own. ``options`` are libpq's.
    """

    hosts: tuple[tuple[str, int | None], ...] = ()
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, text: str) -> Self:
        """Return what a text says; blanks and line breaks around it do not count.

        Raises:
            ValueError: when it is no such URL, or has something that is not carried out; the message has no secret.
        """
        text = text.strip()
        _, authority, path, query = _parts(text)
        given = _query(query)
        login, _, places = authority.rpartition("@")
        user, _, password = login.partition(":")
        hosts = tuple(_host_and_port(one) for one in places.split(",") if places)
        before = {"user": user, "password": password, "dbname": path.removeprefix("/")}
        named = {name: given.pop(name, None) or unquote(said) or _of_environment(name) for name, said in before.items()}
        names = given.pop("host", None) or (None if hosts else _of_environment("host"))
        ports = given.pop("port", None) or (None if any(port for _, port in hosts) else _of_environment("port"))
        if names is not None or ports is not None:
            hosts = _combined(
                [host for host, _ in hosts] if names is None else names.split(","),
                [port for _, port in hosts] if ports is None else [_port(one) for one in ports.split(",")],
            )
        left = [name for name in VARIABLES if name in OPTIONS and name not in given]
        given |= {name: said for name in left if (said := _of_environment(name))}
        return cls(hosts, named["user"], named["password"], named["dbname"], given)

    def __str__(self) -> str:
        """Return it as libpq reads it, secrets included."""
        return self._written(lambda secret: quote(secret, safe=""))

    @property
    def shown(self) -> str:
        """It without any secret, for people and logs."""
        return self._written(lambda _: "***")

    def hide(self, text: str) -> str:
        """Return a text with three stars for each secret of this URL."""
        for secret in filter(None, (self.password, self.options.get("sslpassword"))):
            for said in (secret, quote(secret, safe=""), quote(secret)):
                text = text.replace(said, "***")
        return text

    def _written(self, secret: Callable[[str], str]) -> str:
        login = quote(self.user or "", safe="") + (f":{secret(self.password)}" if self.password else "")
        places = ",".join(_place(host, port) for host, port in self.hosts)
        options = "&".join(
            f"{name}={secret(said) if name in SECRETS else quote(said, safe='/')}"
            for name, said in self.options.items()
        )
        return (
            f"postgresql://{login}{'@' if login else ''}{places}/{quote(self.database or '', safe='')}"
            f"{'?' if options else ''}{options}"
        )


def _parts(text: str) -> tuple[str, str, str, str]:
    """Return scheme, authority, path and query. Nothing of them is told in an error: it may be part of a password."""
    if re.search(r"\s", text):
        raise ValueError(f"it has a blank or a line break in it, which a URL cannot have; expected {FORM}")
    scheme, separator, _ = text.partition("://")
    if "%00" in text or "\0" in text:
        raise ValueError("it has a zero byte (%00) in it, which Postgres takes nowhere")
    if not separator:
        raise ValueError(f"this is no URL; expected {FORM}")
    if not SCHEME.fullmatch(scheme):
        raise ValueError(f"{scheme}:// is no URL of Postgres; expected {FORM}")
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError(f"its host is not understood; expected {FORM}, and an IPv6 address in brackets") from None
    if parts.fragment or text.endswith("#") or re.search("[/@]", parts.path.removeprefix("/")):
        raise ValueError("it has a sign that ends a part of a URL; in a password write / as %2F, # as %23, ? as %3F")
    return scheme, parts.netloc, parts.path, parts.query


def _query(text: str) -> dict[str, str]:
    """Return the parameters behind the question mark; unlike in forms, a plus sign is one."""
    given: dict[str, str] = {}
    for one in filter(None, text.split("&")):
        name, equals, said = one.partition("=")
        name, said = unquote(name), unquote(said)
        if name not in OPTIONS and name not in PLACES:
            # What has no value, or is no word, may be the rest of a password that was not quoted.
            shown = name if equals and re.fullmatch("[a-z_]{1,40}", name) else "a parameter"
            raise ValueError(f"{shown} in it is not understood; leave it out (docs/postgres.md lists what is)")
        if name in given:
            raise ValueError(f"{name} stands in it twice; several hosts are written host1:port1,host2:port2")
        if not equals or not said:
            raise ValueError(f"{name} in it has no value")
        _check_word(name, said, f"{name} in it")
        if name == "connect_timeout" and not re.fullmatch(r"[1-9]\d{0,3}", said):
            raise ValueError("connect_timeout in it is not a number of seconds from 1 to 9999")
        if name == "sslrootcert" and said == "system":
            raise ValueError(
                "sslrootcert in it names no file; the system's is mostly /etc/ssl/certs/ca-certificates.crt"
            )
        given[name] = said
    return given


def _check_word(name: str, said: str, whose: str) -> None:
    if name in WORDS and said.lower() not in WORDS[name]:
        raise ValueError(f"{whose} may be {', '.join(WORDS[name])}, and nothing else")


def _of_environment(name: str) -> str | None:
    """Return what a variable says of something that a URL leaves out."""
    said, whose = variable(VARIABLES[name]), f"{VARIABLES[name]} in the environment"
    if said is None and VARIABLES[name] in os.environ:
        return DEFAULTS.get(name)
    if said is not None:
        _check_word(name, said, whose)
        for one in said.split(",") if name == "port" else ():
            _port(one, whose)
    return said


def _host_and_port(text: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]*))(?::(.*))?", text)
    if found is None:
        raise ValueError("its host is not understood; an IPv6 address stands in brackets, as in [::1]:5432")
    host = unquote(found[1] or found[2])
    if not host.startswith("/"):
        try:
            host.encode("idna")  # As the resolver does.
        except UnicodeError:
            raise ValueError("a part of its host's name is empty, or longer than 63 characters") from None
    return host, None if not found[3] else _port(found[3])


def _port(text: str, whose: str = "its port") -> int:
    if not re.fullmatch("[0-9]{1,5}", text) or not 0 < int(text) <= PORT_MAX:
        raise ValueError(f"{whose} is not a number from 1 to {PORT_MAX}")
    return int(text)


def _combined(hosts: Sequence[str], ports: Sequence[int | None]) -> tuple[tuple[str, int | None], ...]:
    """Return each host with its port; one port is that of all."""
    hosts, ports = hosts or [""], ports or [None]
    if len(ports) not in {1, len(hosts)}:
        raise ValueError("it names not as many ports as hosts")
    return tuple(zip(hosts, ports if len(ports) > 1 else [*ports] * len(hosts), strict=True))


def _place(host: str, port: int | None) -> str:
    name = f"[{host}]" if ":" in host else quote(host, safe="")
    return name if port is None else f"{name}:{port}"
