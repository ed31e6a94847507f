#!/usr/bin/env bash
# Prints lines for .env that name the images of others by digest instead of by tag, as they lie on this machine after
# `docker compose pull` and `docker pull python:3.11-slim-bookworm`. DOCKER=podman asks Podman.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

grep -oE '\$\{[A-Z]+_IMAGE:-[^}]+' docker-compose.yml | sort -u | while IFS= read -r found; do
  variable="${found#\$\{}"
  image="${variable#*:-}"
  digest="$("${DOCKER:-docker}" image inspect --format '{{index .RepoDigests 0}}' "$image")"
  # The tag stays, for whoever reads it; the digest decides.
  echo "${variable%%:-*}=$image@${digest#*@}"
done
