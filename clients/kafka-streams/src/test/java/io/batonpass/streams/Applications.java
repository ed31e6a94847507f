package io.batonpass.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ApplicationState;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsAssignment.AssignedTask;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsState;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.assignment.TaskAssignmentUtils;
import org.apache.kafka.streams.processor.assignment.TaskAssignor.AssignmentError;
import org.apache.kafka.streams.processor.assignment.TaskAssignor.TaskAssignment;
import org.apache.kafka.streams.processor.assignment.TaskInfo;
import org.apache.kafka.streams.processor.assignment.TaskTopicPartition;
import org.apache.kafka.streams.processor.internals.assignment.DefaultKafkaStreamsState;
import org.apache.kafka.streams.processor.internals.assignment.DefaultTaskInfo;
import org.apache.kafka.streams.processor.internals.assignment.DefaultTaskTopicPartition;
import org.apache.kafka.streams.state.HostInfo;

/** Applications made by hand, as the leader of a group sees them. */
final class Applications {
    static final long RUNNING = -2;
    static final long UNKNOWN = -3;
    static final long WHOLE_LOG = 1_000_000;

    private final Map<TaskId, TaskInfo> tasks = new TreeMap<>();
    private final Map<ProcessId, Member> members = new LinkedHashMap<>();
    private int standbys;
    private int warmups = 2;
    private List<String> rackTags = List.of();
    private String rackStrategy = "none";

    /** What one process has. */
    static final class Member {
        final ProcessId id;
        final Map<TaskId, Long> lags = new TreeMap<>();
        final SortedSet<TaskId> actives = new TreeSet<>();
        final SortedSet<TaskId> copies = new TreeSet<>();
        final Map<String, String> tags = new TreeMap<>();
        String consumer;
        Optional<HostInfo> host = Optional.empty();
        int threads = 1;

        Member(ProcessId id) {
            this.id = id;
            this.consumer = id.id().toString();
        }

        Member running(String... ids) {
            for (String each : ids) {
                actives.add(TaskId.parse(each));
                lags.put(TaskId.parse(each), RUNNING);
            }
            return this;
        }

        Member restoring(String id, long lag) {
            actives.add(TaskId.parse(id));
            lags.put(TaskId.parse(id), lag);
            return this;
        }

        Member copy(String id, long lag) {
            copies.add(TaskId.parse(id));
            lags.put(TaskId.parse(id), lag);
            return this;
        }

        Member tag(String key, String value) {
            tags.put(key, value);
            return this;
        }

        Member threads(int number) {
            threads = number;
            return this;
        }

        Member consumer(String name) {
            consumer = name;
            return this;
        }
    }

    static ProcessId process(int number) {
        return new ProcessId(new UUID(0, number));
    }

    static String name(int number) {
        return process(number).id().toString();
    }

    Applications stateful(String... ids) {
        for (String id : ids) {
            task(TaskId.parse(id), true);
        }
        return this;
    }

    Applications stateless(String... ids) {
        for (String id : ids) {
            task(TaskId.parse(id), false);
        }
        return this;
    }

    Applications standbys(int number) {
        standbys = number;
        return this;
    }

    Applications warmups(int number) {
        warmups = number;
        return this;
    }

    Applications rackTags(String... tags) {
        rackTags = List.of(tags);
        return this;
    }

    Applications rackStrategy(String strategy) {
        rackStrategy = strategy;
        return this;
    }

    Member member(int number) {
        return members.computeIfAbsent(process(number), Member::new);
    }

    private void task(TaskId id, boolean stateful) {
        Set<TaskTopicPartition> partitions = new HashSet<>();
        partitions.add(new DefaultTaskTopicPartition(
            new TopicPartition("orders", id.partition()), true, false, () -> { }));
        if (stateful) {
            partitions.add(new DefaultTaskTopicPartition(
                new TopicPartition("app-store-changelog", id.partition()), false, true, () -> { }));
        }
        tasks.put(id, new DefaultTaskInfo(id, stateful, stateful ? Set.of("store") : Set.of(), partitions));
    }

    ApplicationState state() {
        Map<ProcessId, KafkaStreamsState> states = new LinkedHashMap<>();
        members.forEach((id, member) -> {
            Map<TaskId, Long> lags = new TreeMap<>();
            tasks.forEach((task, info) -> {
                if (info.isStateful()) {
                    lags.put(task, member.lags.getOrDefault(task, WHOLE_LOG));
                }
            });
            states.put(id, new DefaultKafkaStreamsState(
                id, member.threads, member.tags, member.actives, member.copies,
                new TreeMap<>(Map.of(member.consumer, Set.<TaskId>of())), member.host, Optional.of(lags),
                Optional.empty()));
        });
        AssignmentConfigs configs = new AssignmentConfigs(
            10_000, warmups, standbys, 600_000, rackTags, 10, 1, rackStrategy);
        return new ApplicationState() {
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
        };
    }

    Snapshot snapshot() {
        return Snapshot.of(state());
    }

    /** An application in any state at all, also in those that should not be. */
    static Applications random(Random random) {
        Applications application = new Applications().standbys(random.nextInt(3)).warmups(1 + random.nextInt(3));
        int tasks = random.nextInt(12);
        for (int partition = 0; partition < tasks; partition++) {
            application.task(new TaskId(random.nextInt(2), partition), random.nextInt(4) > 0);
        }
        int members = 1 + random.nextInt(5);
        for (int number = 0; number < members; number++) {
            Member member = application.member(number).threads(1 + random.nextInt(3));
            if (random.nextBoolean()) {
                member.tag("zone", "z" + random.nextInt(3));
            }
            for (Map.Entry<TaskId, TaskInfo> task : application.tasks.entrySet()) {
                String id = task.getKey().toString();
                long lag = random.nextInt(5) == 0 ? UNKNOWN : random.nextInt(30_000);
                switch (random.nextInt(6)) {
                    case 0 -> member.running(id);
                    case 1 -> member.restoring(id, lag);
                    case 2, 3 -> {
                        if (task.getValue().isStateful()) {
                            member.copy(id, lag);
                        }
                    }
                    default -> { }
                }
            }
        }
        // A task that the application does not have any more.
        application.member(random.nextInt(members)).actives.add(new TaskId(9, 9));
        application.member(random.nextInt(members)).copies.add(new TaskId(9, 8));
        return application;
    }

    /** What a rebalance ends by if it does not hold: every process is named, and every task has one active. */
    static void assertComplete(ApplicationState application, TaskAssignment assignment) {
        assertEquals(AssignmentError.NONE, TaskAssignmentUtils.validateTaskAssignment(application, assignment));
        Set<TaskId> actives = new HashSet<>();
        assignment.assignment().forEach(each -> each.tasks().values().forEach(task -> {
            if (task.type() == AssignedTask.Type.ACTIVE) {
                assertTrue(actives.add(task.id()));
            }
        }));
        assertEquals(application.allTasks().keySet(), actives);
        assertEquals(application.kafkaStreamsStates(true).size(), assignment.assignment().size());
    }

    static Set<TaskId> ids(String... ids) {
        Set<TaskId> tasks = new TreeSet<>();
        for (String id : ids) {
            tasks.add(TaskId.parse(id));
        }
        return tasks;
    }
}
