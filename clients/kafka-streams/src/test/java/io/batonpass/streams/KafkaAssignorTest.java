package io.batonpass.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ApplicationState;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsState;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.assignment.TaskInfo;
import org.apache.kafka.streams.processor.internals.assignment.ClientState;
import org.apache.kafka.streams.processor.internals.assignment.DefaultKafkaStreamsState;
import org.apache.kafka.streams.processor.internals.assignment.FallbackPriorTaskAssignor;
import org.apache.kafka.streams.processor.internals.assignment.HighAvailabilityTaskAssignor;
import org.apache.kafka.streams.processor.internals.assignment.LegacyTaskAssignor;
import org.apache.kafka.streams.processor.internals.assignment.RackAwareTaskAssignor;
import org.junit.jupiter.api.Test;

/** Without an assignor Kafka Streams decides on what members said; with one, on what the assignor is shown of it. */
class KafkaAssignorTest {

    /** A group as Kafka Streams itself holds it, made the way that its leader makes it of what members say. */
    private static final class Group {
        final Map<TaskId, TaskInfo> tasks = new TreeMap<>();
        final Map<ProcessId, ClientState> clients = new HashMap<>();
        final Set<TaskId> stateful = new TreeSet<>();
        final AssignmentConfigs configs;

        Group(Random random, boolean endsAreRead) {
            configs = new AssignmentConfigs(10_000, 1 + random.nextInt(3), random.nextInt(3), 600_000,
                random.nextBoolean() ? List.of("zone") : List.of(), 10, 1, "none");
            Map<TopicPartition, TaskId> inputs = new HashMap<>();
            Map<TaskId, Long> ends = new HashMap<>();
            Applications described = new Applications();
            for (int partition = 0; partition < 1 + random.nextInt(20); partition++) {
                String id = random.nextInt(2) + "_" + partition;
                TaskId task = TaskId.parse(id);
                inputs.put(new TopicPartition("orders", partition), task);
                if (random.nextInt(4) > 0) {
                    described.stateful(id);
                    stateful.add(task);
                    ends.put(task, endsAreRead ? 100_000L : Applications.UNKNOWN);
                } else {
                    described.stateless(id);
                }
            }
            tasks.putAll(described.state().allTasks());

            int members = 1 + random.nextInt(6);
            List<TaskId> owned = new ArrayList<>(tasks.keySet());
            for (int number = 0; number < members; number++) {
                ProcessId process = Applications.process(number);
                ClientState client = new ClientState(process,
                    random.nextBoolean() ? Map.of("zone", "z" + random.nextInt(3)) : Map.of());
                for (int thread = 0; thread < 1 + random.nextInt(2); thread++) {
                    String consumer = "consumer-" + number + "-" + thread;
                    client.incrementCapacity();
                    Map<TaskId, Long> offsets = new HashMap<>();
                    Set<TopicPartition> partitions = new HashSet<>();
                    for (TaskId task : tasks.keySet()) {
                        if (owned.contains(task) && random.nextInt(members + 1) == 0) {
                            owned.remove(task);
                            inputs.forEach((partition, of) -> {
                                if (of.equals(task)) {
                                    partitions.add(partition);
                                }
                            });
                            if (stateful.contains(task) && random.nextInt(4) > 0) {
                                offsets.put(task, Applications.RUNNING);
                            }
                        } else if (thread == 0 && stateful.contains(task) && random.nextInt(3) == 0) {
                            offsets.put(task, (long) random.nextInt(120_000));
                        }
                    }
                    client.addOwnedPartitions(partitions, consumer);
                    client.addPreviousTasksAndOffsetSums(consumer, offsets);
                }
                client.initializePrevTasks(inputs, false);
                client.computeTaskLags(process, ends);
                clients.put(process, client);
            }
        }

        Snapshot shown() {
            Map<ProcessId, KafkaStreamsState> states = new HashMap<>();
            clients.forEach((process, client) -> states.put(process, new DefaultKafkaStreamsState(
                process, client.capacity(), client.clientTags(), client.previousActiveTasks(),
                client.previousStandbyTasks(), client.taskIdsByPreviousConsumer(), Optional.empty(),
                Optional.of(client.taskLagTotals()), Optional.empty())));
            return Snapshot.of(new ApplicationState() {
                @Override
                public Map<ProcessId, KafkaStreamsState> kafkaStreamsStates(boolean computeTaskLags) {
                    return states;
                }

                @Override
                public AssignmentConfigs assignmentConfigs() {
                    return configs;
                }

                @Override
                public Map<TaskId, TaskInfo> allTasks() {
                    return tasks;
                }
            });
        }

        /** Decide in place, as Kafka Streams does; return whether another rebalance is to follow. */
        boolean decidedByKafka(LegacyTaskAssignor assignor) {
            RackAwareTaskAssignor racks = new RackAwareTaskAssignor(
                Cluster.empty(), Map.of(), Map.of(), Map.of(), Map.of(), null, configs, Time.SYSTEM);
            return assignor.assign(clients, tasks.keySet(), stateful, racks, configs);
        }
    }

    private static void assertSame(Group group, LegacyTaskAssignor kafkas) {
        Decision decision = KafkaAssignor.decide(group.shown());
        boolean more = group.decidedByKafka(kafkas);
        assertEquals(kafkas.getClass().getSimpleName(), decision.by());
        group.clients.forEach((process, client) -> {
            assertEquals(client.activeTasks(), decision.tasks().get(process).active());
            assertEquals(client.standbyTasks(), decision.tasks().get(process).copies());
        });
        assertEquals(more ? Optional.of(Duration.ofMinutes(10)) : Optional.empty(), decision.followup());
    }

    @Test
    void itDecidesAsKafkaDoesWithoutAnAssignor() {
        Random random = new Random(31);
        for (int round = 0; round < 500; round++) {
            assertSame(new Group(random, true), new HighAvailabilityTaskAssignor());
        }
    }

    @Test
    void itDecidesAsKafkaDoesWhereTheEndsOfChangelogsCouldNotBeRead() {
        Random random = new Random(32);
        int seen = 0;
        for (int round = 0; round < 500; round++) {
            Group group = new Group(random, false);
            boolean unknown = group.clients.values().stream()
                .anyMatch(client -> client.taskLagTotals().containsValue(Applications.UNKNOWN));
            if (unknown) {
                assertSame(group, new FallbackPriorTaskAssignor());
                seen++;
            }
        }
        assertTrue(seen > 250, "rounds: " + seen);
    }

    @Test
    void itIsCompleteForApplicationsOfAllShapes() {
        Random random = new Random(33);
        for (int round = 0; round < 500; round++) {
            Applications application = Applications.random(random);
            Applications.assertComplete(
                application.state(), KafkaAssignor.decide(application.snapshot()).assignment(Optional.empty()));
        }
    }

    @Test
    void itKnowsWhereRacksWouldBeLookedAt() {
        assertEquals(false, KafkaAssignor.looksAtRacks(new Applications().snapshot()));
        assertEquals(true, KafkaAssignor.looksAtRacks(new Applications().rackStrategy("min_traffic").snapshot()));
    }
}
