package io.batonpass.streams;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsAssignment;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsAssignment.AssignedTask;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.assignment.TaskAssignor.TaskAssignment;

/**
 * Who gets what, and when to look again.
 *
 * @param by who decided
 * @param followup how long until another rebalance; none where nothing is to come
 * @param everyone whether every process asks for that rebalance, so that nobody learns of it by heartbeat; else one does
 */
record Decision(String by, SortedMap<ProcessId, Tasks> tasks, Optional<Duration> followup, boolean everyone) {

    /** What one process gets. Kafka Streams has one role for a copy: it does not tell a warmup from a standby. */
    record Tasks(Set<TaskId> active, Set<TaskId> copies) {
        Tasks() {
            this(new TreeSet<>(), new TreeSet<>());
        }
    }

    /** An entry for every process: one that is not named ends the rebalance for all. */
    static SortedMap<ProcessId, Tasks> nothingYet(Set<ProcessId> processes) {
        SortedMap<ProcessId, Tasks> tasks = new TreeMap<>();
        processes.forEach(process -> tasks.put(process, new Tasks()));
        return tasks;
    }

    /** The decision as Kafka Streams takes it. */
    TaskAssignment assignment(Optional<ProcessId> own) {
        Optional<Instant> deadline = followup.map(Instant.now()::plus);
        List<KafkaStreamsAssignment> assignments = new ArrayList<>();
        for (Map.Entry<ProcessId, Tasks> entry : tasks.entrySet()) {
            Set<AssignedTask> assigned = new HashSet<>();
            entry.getValue().active().forEach(task -> assigned.add(new AssignedTask(task, AssignedTask.Type.ACTIVE)));
            entry.getValue().copies().forEach(task -> assigned.add(new AssignedTask(task, AssignedTask.Type.STANDBY)));
            KafkaStreamsAssignment assignment = KafkaStreamsAssignment.of(entry.getKey(), assigned);
            boolean asks = deadline.isPresent() && (everyone || own.filter(entry.getKey()::equals).isPresent());
            assignments.add(asks ? assignment.withFollowupRebalance(deadline.get()) : assignment);
        }
        return new TaskAssignment(assignments);
    }
}
