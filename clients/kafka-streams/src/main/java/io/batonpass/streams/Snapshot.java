package io.batonpass.streams;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ApplicationState;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsState;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.assignment.TaskInfo;

/**
 * What the leader knows at a rebalance, read once and in order.
 *
 * @param stateful the tasks that have a changelog; without one there is nothing to copy, whatever stores a task has
 * @param lags for each process the records that each stateful task lacks there, as Kafka Streams says it
 */
record Snapshot(
    SortedMap<TaskId, TaskInfo> tasks,
    SortedSet<TaskId> stateful,
    SortedMap<ProcessId, KafkaStreamsState> processes,
    Map<ProcessId, Map<TaskId, Long>> lags,
    AssignmentConfigs configs
) {
    /** Members are called after their thread's client id, static ones after their instance id; both end with a UUID. */
    private static final Pattern THREAD = Pattern.compile(
        "(?<thread>.+)-StreamThread-\\d+-consumer(-.+)?|(?<instance>.+)-\\d+-\\p{XDigit}{8}(-\\p{XDigit}{4}){3}-\\p{XDigit}{12}");

    /** Kafka's figure for an active that runs: it has no lag. Other negative figures mean that nobody knows. */
    private static final long RUNNING = -2;

    static Snapshot of(ApplicationState application) {
        SortedMap<TaskId, TaskInfo> tasks = new TreeMap<>(application.allTasks());
        SortedMap<ProcessId, KafkaStreamsState> processes = new TreeMap<>(application.kafkaStreamsStates(true));
        SortedSet<TaskId> stateful = new TreeSet<>();
        Map<ProcessId, Map<TaskId, Long>> lags = new HashMap<>();
        processes.forEach((process, state) -> {
            Map<TaskId, Long> known = state.statefulTasksToLagSums();
            lags.put(process, known);
            stateful.addAll(known.keySet());
        });
        stateful.retainAll(tasks.keySet());
        return new Snapshot(tasks, stateful, processes, lags, application.assignmentConfigs());
    }

    boolean isRunning(TaskId task, ProcessId process) {
        return lags.get(process).getOrDefault(task, 0L) == RUNNING;
    }

    /** How many records a copy lacks; the whole changelog where there is none; empty where nobody knows. */
    OptionalLong lag(TaskId task, ProcessId process) {
        Long lag = lags.get(process).get(task);
        if (lag != null && lag == RUNNING) {
            return OptionalLong.of(0);
        }
        return lag == null || lag < 0 ? OptionalLong.empty() : OptionalLong.of(lag);
    }

    /** Readiness as a number to sort by: running, then by lag, then unknown. */
    long rank(TaskId task, ProcessId process) {
        return isRunning(task, process) ? -1 : lag(task, process).orElse(Long.MAX_VALUE);
    }

    /** The process that has a member whose id begins with one of these names, or else any. */
    Optional<ProcessId> own(List<String> names) {
        return processes.values().stream()
            .filter(state -> state.consumerClientIds().stream()
                .anyMatch(id -> names.stream().anyMatch(name -> id.startsWith(name + "-"))))
            .map(KafkaStreamsState::processId)
            .findFirst()
            .or(() -> processes.keySet().stream().findFirst());
    }

    static String id(ProcessId process) {
        return process.id().toString();
    }

    /** What people call a process: its group.instance.id or client.id; none where Kafka made that of the process id. */
    Optional<String> name(ProcessId process) {
        return processes.get(process).consumerClientIds().stream()
            .map(THREAD::matcher).filter(Matcher::matches)
            .map(each -> each.group("thread") == null ? each.group("instance") : each.group("thread"))
            .filter(name -> !name.contains(id(process)))
            .findFirst();
    }
}
