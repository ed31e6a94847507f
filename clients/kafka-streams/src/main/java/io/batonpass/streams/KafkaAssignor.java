package io.batonpass.streams;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.SortedMap;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.internals.assignment.ClientState;
import org.apache.kafka.streams.processor.internals.assignment.FallbackPriorTaskAssignor;
import org.apache.kafka.streams.processor.internals.assignment.HighAvailabilityTaskAssignor;
import org.apache.kafka.streams.processor.internals.assignment.LegacyTaskAssignor;
import org.apache.kafka.streams.processor.internals.assignment.RackAwareTaskAssignor;

/**
 * What Kafka Streams decides when no assignor is configured.
 *
 * <p>Its assignor is not public: of those that come with it, only {@code StickyTaskAssignor} is, which decides otherwise
 * and warms nothing up. So this uses classes that a release may change without notice. They have had the same shape from
 * 3.8 to 4.3, and the tests hold this against Kafka's own call for the version that they run with.
 *
 * <p>One thing cannot be had from here: the racks of partitions, which only a configured {@code
 * rack.aware.assignment.strategy} looks at.
 */
final class KafkaAssignor {
    private KafkaAssignor() { }

    static boolean looksAtRacks(Snapshot snapshot) {
        String strategy = snapshot.configs().rackAwareAssignmentStrategy();
        return strategy != null && !StreamsConfig.RACK_AWARE_ASSIGNMENT_STRATEGY_NONE.equals(strategy);
    }

    static Decision decide(Snapshot snapshot) {
        Map<ProcessId, ClientState> clients = new HashMap<>();
        snapshot.processes().forEach((process, state) -> clients.put(process, new ClientState(
            state.previousActiveTasks(), state.previousStandbyTasks(), snapshot.lags().get(process), state.clientTags(),
            state.numProcessingThreads(), process)));
        LegacyTaskAssignor assignor =
            endsAreKnown(snapshot) ? new HighAvailabilityTaskAssignor() : new FallbackPriorTaskAssignor();
        boolean more = assignor.assign(
            clients, snapshot.tasks().keySet(), snapshot.stateful(), withoutRacks(snapshot), snapshot.configs());

        SortedMap<ProcessId, Decision.Tasks> tasks = Decision.nothingYet(clients.keySet());
        clients.forEach((process, client) -> {
            tasks.get(process).active().addAll(client.activeTasks());
            tasks.get(process).copies().addAll(client.standbyTasks());
        });
        Optional<Duration> probing = Optional.of(Duration.ofMillis(snapshot.configs().probingRebalanceIntervalMs()));
        return new Decision(assignor.getClass().getSimpleName(), tasks, probing.filter(any -> more), false);
    }

    /** Kafka Streams uses another assignor where it could not read the ends of changelogs: then no lag at all is known. */
    private static boolean endsAreKnown(Snapshot snapshot) {
        boolean unknown = false;
        for (TaskId task : snapshot.stateful()) {
            for (ProcessId process : snapshot.processes().keySet()) {
                if (snapshot.lag(task, process).isEmpty()) {
                    unknown = true;
                } else if (!snapshot.isRunning(task, process)) {
                    return true;
                }
            }
        }
        return !unknown;
    }

    private static RackAwareTaskAssignor withoutRacks(Snapshot snapshot) {
        return new RackAwareTaskAssignor(
            Cluster.empty(), Map.of(), Map.of(), Map.of(), null, null, snapshot.configs(), Time.SYSTEM);
    }
}
