#!/usr/bin/env bash
# Starts the broker as the official image does: Kafka's own class makes the settings of the variables, and formats the
# volume unless it is.
set -euo pipefail
export CLUSTER_ID="${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}"
java=(java -Xmx512m -cp "/opt/kafka/libs/*" -Dorg.slf4j.simpleLogger.defaultLogLevel=warn)
touch /opt/kafka/logs/server.log
"${java[@]}" kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker \
  --mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config ||
  [[ -e /var/lib/kafka/data/meta.properties ]]
exec "${java[@]}" kafka.Kafka /opt/kafka/config/server.properties
