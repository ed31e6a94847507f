#!/usr/bin/env bash
# Asks the broker something and ends well if it answers. The tool of this name is not among the jars; this one takes the
# same options.
set -euo pipefail
exec java -Xmx64m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "/opt/kafka/libs/*" -Dorg.slf4j.simpleLogger.defaultLogLevel=error \
  kafka.admin.ConfigCommand --describe --entity-type brokers --entity-name 1 "$@"
