#!/usr/bin/env bash
# Makes an authority, and with it certificates for Postgres and Kafka, where there are none or theirs run out within
# thirty days. Their servers read them at the next start.
set -euo pipefail

authority=/run/authority
# A key is readable for its owner alone; who needs another's is given it.
umask 077

lasts() {
  [[ -e "$1" ]] && openssl x509 -in "$1" -noout -checkend $((30 * 86400)) >/dev/null
}

if ! lasts "$authority/ca.crt"; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=Batonpass, this installation" \
    -addext keyUsage=critical,keyCertSign -keyout "$authority/ca.key" -out "$authority/ca.crt" 2>/dev/null
  echo "certificates: made an authority"
fi
install --mode=644 "$authority/ca.crt" /run/trust/ca.crt

# make NAME FOLDER OWNER: a certificate for the host of that name, with its key, for a user of that number.
make() {
  local name="$1" folder="$2" owner="$3" made
  if lasts "$folder/server.crt" && openssl verify -CAfile "$authority/ca.crt" "$folder/server.crt" >/dev/null 2>&1; then
    return
  fi
  # Beside their place, where root needs no right to read another's key.
  made="$(mktemp -d -p "$folder")"
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" -keyout "$made/server.key" -out "$made/request" 2>/dev/null
  openssl x509 -req -in "$made/request" -CA "$authority/ca.crt" -CAkey "$authority/ca.key" -days 397 -out "$made/server.crt" \
    -extfile <(echo "subjectAltName=DNS:$name,DNS:localhost") 2>/dev/null
  # Kafka reads key and certificates from one file.
  cat "$made/server.key" "$made/server.crt" "$authority/ca.crt" >"$made/server.pem"
  rm "$made/request"
  chmod 644 "$made/server.crt"
  chown "$owner:$owner" "$made"/*
  mv --force "$made"/* "$folder/"
  rmdir "$made"
  echo "certificates: made one for $name"
}

# The users of the images postgres (Debian) and apache/kafka.
make postgres /run/postgres 999
make kafka /run/kafka 1000
