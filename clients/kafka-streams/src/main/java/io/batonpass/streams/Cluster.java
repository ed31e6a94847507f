package io.batonpass.streams;

import java.time.Duration;
import java.util.Collections;
import java.util.Map;
import java.util.Optional;
import java.util.WeakHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.streams.StreamsConfig.InternalConfig;
import org.apache.kafka.streams.processor.internals.assignment.ReferenceContainer;

/**
 * The Kafka cluster of an application: two applications may have the same id on two clusters.
 *
 * <p>Asked of the application's own admin client, which Kafka Streams passes to its assignors. That is no public way. But
 * a client of our own would need the application's credentials, and a thread for a single question.
 */
final class Cluster {
    private static final Map<Admin, String> KNOWN = Collections.synchronizedMap(new WeakHashMap<>());

    /** The share of the time for an answer that may pass until the cluster says who it is. */
    private static final int SHARE = 4;

    private final Object references;

    private Cluster(Object references) {
        this.references = references;
    }

    static Cluster of(Map<String, ?> configs) {
        return new Cluster(configs.get(InternalConfig.REFERENCE_CONTAINER_PARTITION_ASSIGNOR));
    }

    /** The cluster's id; none where it cannot be found out in time. Then a later question has it. */
    Optional<String> id(Duration timeout) throws InterruptedException {
        try {
            if (!(references instanceof ReferenceContainer container) || container.adminClient == null) {
                return Optional.empty();
            }
            String known = KNOWN.get(container.adminClient);
            if (known == null) {
                known = container.adminClient.describeCluster().clusterId()
                    .get(timeout.toMillis() / SHARE, TimeUnit.MILLISECONDS);
                KNOWN.put(container.adminClient, known);
            }
            return Optional.ofNullable(known);
        } catch (InterruptedException stopped) {
            throw stopped;
        } catch (Exception | LinkageError unknown) {
            return Optional.empty();
        }
    }
}
