package io.batonpass.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.streams.StreamsConfig.InternalConfig;
import org.apache.kafka.streams.processor.internals.assignment.ReferenceContainer;
import org.junit.jupiter.api.Test;

/** That it knows the cluster of a real application is tested with one. */
class ClusterTest {
    private static Optional<String> id(Object references) throws InterruptedException {
        return Cluster.of(Map.of(InternalConfig.REFERENCE_CONTAINER_PARTITION_ASSIGNOR, references))
            .id(Duration.ofSeconds(2));
    }

    @Test
    void aClusterThatCannotBeAskedIsUnknown() throws InterruptedException {
        assertEquals(Optional.empty(), Cluster.of(Map.of()).id(Duration.ofSeconds(2)));
        assertEquals(Optional.empty(), id("something else"));
        ReferenceContainer references = new ReferenceContainer();
        assertEquals(Optional.empty(), id(references));
        references.adminClient = (Admin) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {Admin.class},
            (admin, method, arguments) -> {
                throw new IllegalStateException("closed");
            });
        assertEquals(Optional.empty(), id(references));
    }
}
