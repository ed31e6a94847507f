package io.batonpass.streams;

import java.io.IOException;
import java.io.InputStream;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.function.Predicate;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsState;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.assignment.TaskInfo;
import org.apache.kafka.streams.processor.assignment.TaskTopicPartition;

/** What the coordinator is asked: the snapshot as JSON, and in shadow mode what was decided without it. */
final class AdviceRequest {
    /** From a file of its jar: the class that knows it is not public, and has another name from 4.4 on. */
    private static final String STREAMS_VERSION = streamsVersion();

    private AdviceRequest() { }

    private static String streamsVersion() {
        Properties properties = new Properties();
        try (InputStream file = KafkaStreams.class.getResourceAsStream("/kafka/kafka-streams-version.properties")) {
            properties.load(file);
        } catch (IOException | RuntimeException unknown) {
            // It is for people, and decides nothing.
        }
        return properties.getProperty("version", "");
    }

    static byte[] body(Settings settings, Optional<String> cluster, Snapshot snapshot) throws IOException {
        return Json.written(question(settings, cluster, snapshot));
    }

    static byte[] body(Settings settings, Optional<String> cluster, Snapshot snapshot, Decision other)
        throws IOException {
        Map<String, Object> assignment = new LinkedHashMap<>();
        other.tasks().forEach((process, tasks) -> assignment.put(
            Snapshot.id(process), Map.of("active", names(tasks.active()), "standby", names(tasks.copies()))));
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("assignor", other.by());
        said.put("assignment", assignment);
        other.followup().ifPresent(followup -> said.put("followup_ms", followup.toMillis()));
        Map<String, Object> question = question(settings, cluster, snapshot);
        question.put("other", said);
        return Json.written(question);
    }

    private static Map<String, Object> question(Settings settings, Optional<String> cluster, Snapshot snapshot) {
        Map<String, Object> question = new LinkedHashMap<>();
        question.put("mode", settings.mode().name().toLowerCase(Locale.ROOT));
        question.put("application_id", settings.applicationId());
        cluster.ifPresent(id -> question.put("cluster_id", id));
        question.put("plugin_version", BatonpassTaskAssignor.VERSION);
        question.put("streams_version", STREAMS_VERSION);
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
        Map<String, Object> member = new LinkedHashMap<>();
        member.put("id", Snapshot.id(state.processId()));
        snapshot.name(state.processId()).ifPresent(name -> member.put("name", name));
        state.hostInfo().ifPresent(host -> member.put("endpoint", host.host() + ":" + host.port()));
        member.put("capacity", state.numProcessingThreads());
        member.put("client_tags", state.clientTags());
        member.put("tasks", copies);
        return member;
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
