#!/usr/bin/env bash
# Starts Postgres as the official image does: as root it hands over to the database's user; an empty volume becomes a
# cluster with the role and the database that the variables name, which a password opens.
set -euo pipefail
if [[ "$(id -u)" == 0 ]]; then
  mkdir -p "$PGDATA"
  chown -R postgres "$(dirname "$PGDATA")" /var/run/postgresql
  chmod 700 "$PGDATA"
  exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi
if [[ ! -s "$PGDATA/PG_VERSION" ]]; then
  initdb --username="$POSTGRES_USER" --pwfile=<(echo "$POSTGRES_PASSWORD") --auth-local=trust --auth-host=scram-sha-256
  echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
  echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
  pg_ctl --wait --options="${*:2} -c listen_addresses=''" start
  createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
  pg_ctl --wait stop
fi
exec "$@"
