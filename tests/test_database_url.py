"""One URL of a database is read alike by every command and every driver; what is not carried out is refused by name."""

import re
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from batonpass.database_url import FILES, FREE, OPTIONS, WORDS, DatabaseUrl
from batonpass.postgres.connect import DRIVER, connect, driver_arguments

SECRET = "p@s/s:w#o?r%d"  # noqa: S105 - a password that has every sign which a URL must quote
QUOTED = "p%40s%2Fs%3Aw%23o%3Fr%25d"
PAGE = Path(__file__).parent.parent / "docs" / "postgres.md"


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("postgresql://u:pw@h:1/d", {"host": ["h"], "port": [1], "user": "u", "password": "pw", "database": "d"}),
        ("postgres://u@h/d", {"host": ["h"], "user": "u", "database": "d"}),
        ("postgresql+asyncpg://h", {"host": ["h"]}),
        ("  postgresql+psycopg2://h/d\r\n", {"host": ["h"], "database": "d"}),
        (f"postgresql://u%40x:{QUOTED}@h/d%20e", {"user": "u@x", "password": SECRET, "database": "d e"}),
        (f"postgresql:///?host=h&port=2&user=u&password={QUOTED}&dbname=d", {"host": ["h"], "port": [2], "user": "u"}),
        (f"postgresql:///d?user=u&password={QUOTED}", {"password": SECRET}),
        ("postgresql:///d?password=a+b", {"password": "a+b"}),
        ("postgresql://[::1]:5432/d", {"host": ["::1"], "port": [5432]}),
        ("postgresql://h1:1,h2:2/d", {"host": ["h1", "h2"], "port": [1, 2]}),
        ("postgresql://h1,[fd00::1]:2,h3/d", {"host": ["h1", "fd00::1", "h3"], "port": [5432, 2, 5432]}),
        ("postgresql://h1,h2/d", {"host": ["h1", "h2"]}),
        ("postgresql:///d?host=h1,h2&port=7", {"host": ["h1", "h2"], "port": [7, 7]}),
        ("postgresql://%2Frun%2Fpg:5433/d", {"host": ["/run/pg"], "port": [5433]}),
        ("postgresql:///d?host=/run/pg", {"host": ["/run/pg"]}),
        ("postgresql:///d?port=7", {"port": [7]}),
        # What stands behind the question mark counts, as for libpq.
        ("postgresql://h:1/d?port=2", {"host": ["h"], "port": [2]}),
        ("postgresql://h:1/d?host=/run/pg", {"host": ["/run/pg"], "port": [1]}),
        ("postgresql://u:pw@h/d?user=v&password=x&dbname=e", {"user": "v", "password": "x", "database": "e"}),
        (
            "postgresql://h/d?application_name=b&options=-csearch_path%3Dpublic",
            {"server_settings": {"application_name": "b", "options": "-csearch_path=public"}},
        ),
        ("postgresql://h/d?connect_timeout=30", {"timeout": 30.0}),
        ("postgresql://h/d", {"timeout": 5.0}),
        (
            "postgresql://h/d?sslmode=require&sslpassword=a%20b&target_session_attrs=read-write",
            {"dsn": "postgresql://?sslmode=require&sslpassword=a+b", "target_session_attrs": "read-write"},
        ),
    ],
)
def test_what_a_url_says_reaches_the_driver(url: str, wanted: dict[str, object]) -> None:
    found = driver_arguments(url)
    assert {name: found.get(name) for name in wanted} == wanted
    assert driver_arguments(str(DatabaseUrl.read(url))) == found, "libpq reads the same"


@pytest.mark.parametrize("name", sorted(OPTIONS))
async def test_every_option_that_is_taken_is_one_of_the_driver(name: str) -> None:
    """A name that it does not know would be an error of Python's, not of the database."""
    value = {"connect_timeout": "3", "ssl_max_protocol_version": "TLSv1.3", "ssl_min_protocol_version": "TLSv1.2"}
    said = WORDS[name][-1] if name in WORDS else __file__ if name in FILES else value.get(name, "x")
    more = "&sslmode=require" if name == "sslnegotiation" else ""
    engine = connect(f"postgresql://u:p@127.0.0.1:1/d?{name}={said}{more}")
    with pytest.raises((OSError, ValueError, DBAPIError)) as refused:
        async with engine.connect():
            pass
    await engine.dispose()
    assert "unexpected keyword" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"sslrootcert in it names {tmp_path}/ca.pem, which is no file"):
        driver_arguments(f"postgresql://h/d?sslmode=verify-full&sslrootcert={tmp_path}/ca.pem")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "is no URL"),
        ("host=h password=SECRET dbname=d", "has a blank"),
        ("u:SECRET@h/d", "is no URL"),
        ("sqlite:///x", "sqlite:// is no URL of Postgres"),
        ("mysql://u:SECRET@h/d", "no URL of Postgres"),
        ("postgresql://u:SECRET@h/d\nBATONPASS_X=1", "a line break"),
        ("postgresql://u:SECRET@h:x/d", "port is not a number"),
        ("postgresql://u:SECRET@h:0/d", "port is not a number"),
        ("postgresql://u:SECRET@h:70000/d", "port is not a number"),
        ("postgresql://u:SECRET@::1/d", "port is not a number"),
        ("postgresql://u:SECRET@[::1/d", "in brackets"),
        ("postgresql://u:12/SECRET@h/d", "%2F"),
        ("postgresql://u:SEC#RET@h/d", "%23"),
        ("postgresql://u:SECRET?x@h/d", "a parameter in it is not understood"),
        ("postgresql://u:1?SECRET@h/d", "a parameter in it is not understood"),
        ("postgresql://u@h/d?password=a&SECRET", "a parameter in it is not understood"),
        ("postgresql://h/d?host=a:1&host=b:2", "host stands in it twice"),
        ("postgresql:///d?host=a&host=b", "host stands in it twice"),
        ("postgresql://a,b,c/d?port=1,2", "not as many ports as hosts"),
        ("postgresql://h/d?sslmode", "no value"),
        ("postgresql://h/d?sslmode=none", "may be disable, allow"),
        ("postgresql://h/d?channel_binding=require", "channel_binding in it may be disable, prefer, and nothing else"),
        ("postgresql://h/d?gssencmode=require", "gssencmode in it may be"),
        ("postgresql://h/d?load_balance_hosts=random", "load_balance_hosts in it may be"),
        ("postgresql://h/d?client_encoding=latin1", "client_encoding in it may be"),
        ("postgresql://h/d?connect_timeout=0", "connect_timeout"),
        ("postgresql://h/d?connect_timeout=soon", "connect_timeout"),
        ("postgresql://h/d?sslrootcert=system", "sslrootcert"),
        *(
            (f"postgresql://u:SECRET@h/d?{name}=1", f"{name} in it is not understood")
            for name in ("hostaddr", "keepalives", "require_auth", "service", "ssl", "timeout", "command_timeout")
        ),
    ],
)
def test_what_a_url_may_not_say_is_refused_in_words_without_its_password(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as refused:
        DatabaseUrl.read(url)
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://u:{QUOTED}@h:1/d", "postgresql://u:***@h:1/d"),
        (f"postgresql://h/d?user=u&password={QUOTED}", "postgresql://u:***@h/d"),
        (f"postgresql://u@h/d?sslkey=k&sslpassword={QUOTED}", "postgresql://u@h/d?sslkey=k&sslpassword=***"),
    ],
)
def test_a_secret_is_not_shown_wherever_it_stands(url: str, shown: str) -> None:
    read = DatabaseUrl.read(url)
    assert read.shown == shown
    assert SECRET not in repr(read)
    assert QUOTED not in repr(read)
    assert read.hide(f"{url}: {SECRET}?").count("***") == 2
    assert SECRET not in read.hide(f"{url}: {SECRET}")


@pytest.mark.parametrize(
    ("url", "said", "wanted"),
    [
        ("postgresql://u@h/d", {"PGPASSWORD": "pw\n"}, "postgresql://u:pw@h/d"),
        ("postgresql:///", {"PGHOST": "h\n", "PGPORT": "7\n", "PGUSER": "u ", "PGDATABASE": "d"}, "postgresql://u@h:7/d"),
        ("postgresql:///d", {"PGHOST": "a,b", "PGPORT": "1,2"}, "postgresql://a:1,b:2/d"),
        ("postgresql://h/d", {"PGPORT": "7", "PGSSLMODE": "require"}, "postgresql://h:7/d?sslmode=require"),
        ("postgresql://h/d", {"PGSSLMODE": "", "PGPASSWORD": " "}, "postgresql://h/d?sslmode=prefer"),
        # The URL counts more, and what it says makes no word of a variable wrong.
        ("postgresql://u:pw@h:1/d", {"PGUSER": "v", "PGPASSWORD": "x", "PGHOST": "i", "PGPORT": "x"}, "postgresql://u:pw@h:1/d"),
        ("postgresql:///d?host=h&port=1", {"PGHOST": "i", "PGPORT": "x"}, "postgresql://h:1/d"),
        ("postgresql://h/d?sslmode=disable", {"PGSSLMODE": "none"}, "postgresql://h/d?sslmode=disable"),
    ],
)  # fmt: skip
def test_what_a_url_leaves_out_is_read_from_variables_by_the_same_rule(
    monkeypatch: pytest.MonkeyPatch, url: str, said: dict[str, str], wanted: str
) -> None:
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert str(DatabaseUrl.read(url)) == wanted
    given = driver_arguments(url)
    assert driver_arguments(wanted) == given


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *(("PGPORT", "abc"), ("PGPORT", "240100000"), ("PGPORT", "1,x"), ("PGSSLMODE", "bogus")),
        *(("PGTARGETSESSIONATTRS", "bogus"), ("PGSSLNEGOTIATION", "bogus")),
    ],
)
def test_a_variable_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    monkeypatch.setenv(name, said)
    with pytest.raises(ValueError, match=f"^{name} in the environment"):
        DatabaseUrl.read("postgresql://u@h/d")


def test_a_user_that_neither_url_nor_system_names_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under the numbers that OpenShift runs containers under."""

    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    with pytest.raises(ValueError, match="names no user"):
        driver_arguments("postgresql://h/d")
    assert driver_arguments("postgresql://u@h/d")["user"] == "u"


def test_the_page_lists_what_a_url_may_say() -> None:
    page = PAGE.read_text()
    for name in (*WORDS, *FREE, "passfile", "sslcert", "sslkey", "sslrootcert", "sslcrl"):
        assert f"`{name}" in page, name


def test_a_connection_is_asked_for_without_a_url_that_something_could_print() -> None:
    engine = connect(f"postgresql://u:{QUOTED}@h/d")
    assert str(engine.url) == DRIVER


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://u:Zq7Secret%00@h/d", "zero byte"),
        ("postgresql://u:Zq7Secret@h/d?application_name=%00x", "zero byte"),
        ("postgresql://u:Zq7Secret@h:٥٤٣٢/d", "port"),
        ("postgresql://u:Zq7Secret@a..b/d", "host's name"),
        (f"postgresql://u:Zq7Secret@{'a' * 300}.invalid/d", "host's name"),
    ],
)
def test_what_no_driver_could_connect_with_is_refused_in_words(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        DatabaseUrl.read(url)
    assert "Zq7Secret" not in str(refused.value)
