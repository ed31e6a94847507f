#!/usr/bin/env bash
# What the image of the audit runs: `batonpass` with these arguments, or, where Spark on Kubernetes starts a container as
# a driver or an executor, that part of Spark.
set -euo pipefail

case "${1:-}" in
driver)
  shift
  exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
    --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
  ;;
executor)
  # Options of the executor's JVM come in numbered variables.
  mapfile -t options < <(env | grep '^SPARK_JAVA_OPT_' | sort -V | cut -d= -f2-)
  exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "$SPARK_HOME/jars/*" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
  ;;
spark-submit)
  shift
  exec "$SPARK_HOME/bin/spark-submit" "$@"
  ;;
*)
  exec batonpass "$@"
  ;;
esac
