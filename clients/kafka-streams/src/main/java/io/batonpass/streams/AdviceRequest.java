package io.batonpass.streams;

import java.io.IOException;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Predicate;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsState;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.assignment.TaskInfo;
import org.apache.kafka.streams.processor.assignment.TaskTopicPartition;

/** What the coordinator is asked: the snapshot as JSON, and in shadow mode what was decided without it. */
final class AdviceRequest {
    private AdviceRequest() { }

    static byte[] body(Settings.Mode mode, Snapshot snapshot) throws IOException {
        return Json.written(question(mode, snapshot));
    }

    static byte[] body(Settings.Mode mode, Snapshot snapshot, Decision other) throws IOException {
        Map<String, Object> assignment = new LinkedHashMap<>();
        other.tasks().forEach((process, tasks) -> assignment.put(
            Snapshot.name(process), Map.of("active", names(tasks.active()), "standby", names(tasks.copies()))));
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("assignor", other.by());
        said.put("assignment", assignment);
        other.followup().ifPresent(followup -> said.put("followup_ms", followup.toMillis()));
        Map<String, Object> question = question(mode, snapshot);
        question.put("other", said);
        return Json.written(question);
    }

    private static Map<String, Object> question(Settings.Mode mode, Snapshot snapshot) {
        Map<String, Object> question = new LinkedHashMap<>();
        question.put("mode", mode.name().toLowerCase(Locale.ROOT));
        question.put("plugin_version", BatonpassTaskAssignor.VERSION);
        question.put("streams_version", AppInfoParser.getVersion());
        question.put("config", config(snapshot.configs()));
        question.put("tasks", snapshot.tasks().values().stream().map(task -> task(task, snapshot)).toList());
        question.put("members", snapshot.processes().values().stream().map(each -> member(each, snapshot)).toList());
        return question;
    }

    private static Map<String, Object> config(AssignmentConfigs configs) {
        return Map.of(
            "acceptable_recovery_lag", configs.acceptableRecoveryLag(),
            "max_warmup_replicas", configs.maxWarmupReplicas(),
            "num_standby_replicas", configs.numStandbyReplicas(),
            "rack_aware_tags", configs.rackAwareAssignmentTags());
    }

    private static Map<String, Object> task(TaskInfo task, Snapshot snapshot) {
        return Map.of(
            "id", task.id().toString(),
            "stateful", snapshot.stateful().contains(task.id()),
            "changelog_topics", topics(task, TaskTopicPartition::isChangelog),
            "source_topics", topics(task, TaskTopicPartition::isSource));
    }

    private static List<String> topics(TaskInfo task, Predicate<TaskTopicPartition> wanted) {
        return task.topicPartitions().stream().filter(wanted).map(each -> each.topicPartition().topic()).distinct()
            .sorted().toList();
    }

    private static Map<String, Object> member(KafkaStreamsState state, Snapshot snapshot) {
        Map<String, Object> copies = new LinkedHashMap<>();
        for (TaskId task : known(state.previousActiveTasks(), snapshot)) {
            boolean restores = snapshot.stateful().contains(task) && !snapshot.isRunning(task, state.processId());
            Map<String, Object> copy = new LinkedHashMap<>();
            copy.put("role", "active");
            copy.put("state", restores ? "restoring" : "running");
            if (restores) {
                lag(copy, task, state.processId(), snapshot);
            }
            copies.put(task.toString(), copy);
        }
        for (TaskId task : known(state.previousStandbyTasks(), snapshot)) {
            Map<String, Object> copy = new LinkedHashMap<>();
            copy.put("role", "none");
            lag(copy, task, state.processId(), snapshot);
            copies.putIfAbsent(task.toString(), copy);
        }
        return Map.of(
            "id", Snapshot.name(state.processId()),
            "capacity", state.numProcessingThreads(),
            "client_tags", state.clientTags(),
            "tasks", copies);
    }

    /** Without what an application had once: its state stays on disks for a while. */
    private static List<TaskId> known(Collection<TaskId> tasks, Snapshot snapshot) {
        return tasks.stream().filter(snapshot.tasks()::containsKey).toList();
    }

    private static void lag(Map<String, Object> copy, TaskId task, ProcessId process, Snapshot snapshot) {
        snapshot.lag(task, process).ifPresent(lag -> copy.put("lag", lag));
    }

    private static List<String> names(Collection<TaskId> tasks) {
        return tasks.stream().sorted().map(TaskId::toString).toList();
    }
}
