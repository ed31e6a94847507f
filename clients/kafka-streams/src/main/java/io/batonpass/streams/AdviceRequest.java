package io.batonpass.streams;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
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
    private static final ObjectMapper JSON = new ObjectMapper();

    private AdviceRequest() { }

    static byte[] body(Settings.Mode mode, Snapshot snapshot) throws JsonProcessingException {
        return JSON.writeValueAsBytes(question(mode, snapshot));
    }

    static byte[] body(Settings.Mode mode, Snapshot snapshot, Decision other) throws JsonProcessingException {
        ObjectNode question = question(mode, snapshot);
        ObjectNode said = question.putObject("other");
        said.put("assignor", other.by());
        ObjectNode assignment = said.putObject("assignment");
        other.tasks().forEach((process, tasks) -> {
            ObjectNode one = assignment.putObject(Snapshot.name(process));
            addAll(one.putArray("active"), tasks.active());
            addAll(one.putArray("standby"), tasks.copies());
        });
        other.followup().ifPresent(followup -> said.put("followup_ms", followup.toMillis()));
        return JSON.writeValueAsBytes(question);
    }

    private static ObjectNode question(Settings.Mode mode, Snapshot snapshot) {
        ObjectNode question = JSON.createObjectNode();
        question.put("mode", mode.name().toLowerCase(Locale.ROOT));
        question.put("plugin_version", BatonpassTaskAssignor.VERSION);
        question.put("streams_version", AppInfoParser.getVersion());
        config(question.putObject("config"), snapshot.configs());
        ArrayNode tasks = question.putArray("tasks");
        snapshot.tasks().forEach((task, info) -> task(tasks.addObject(), task, info, snapshot));
        ArrayNode members = question.putArray("members");
        snapshot.processes().forEach((process, state) -> member(members.addObject(), process, state, snapshot));
        return question;
    }

    private static void config(ObjectNode config, AssignmentConfigs configs) {
        config.put("acceptable_recovery_lag", configs.acceptableRecoveryLag());
        config.put("max_warmup_replicas", configs.maxWarmupReplicas());
        config.put("num_standby_replicas", configs.numStandbyReplicas());
        configs.rackAwareAssignmentTags().forEach(config.putArray("rack_aware_tags")::add);
    }

    private static void task(ObjectNode described, TaskId task, TaskInfo info, Snapshot snapshot) {
        described.put("id", task.toString());
        described.put("stateful", snapshot.stateful().contains(task));
        topics(described.putArray("changelog_topics"), info, TaskTopicPartition::isChangelog);
        topics(described.putArray("source_topics"), info, TaskTopicPartition::isSource);
    }

    private static void topics(ArrayNode names, TaskInfo info, Predicate<TaskTopicPartition> wanted) {
        info.topicPartitions().stream().filter(wanted).map(each -> each.topicPartition().topic()).distinct().sorted()
            .forEach(names::add);
    }

    private static void member(ObjectNode member, ProcessId process, KafkaStreamsState state, Snapshot snapshot) {
        member.put("id", Snapshot.name(process));
        member.put("capacity", state.numProcessingThreads());
        ObjectNode tags = member.putObject("client_tags");
        state.clientTags().forEach(tags::put);
        ObjectNode tasks = member.putObject("tasks");
        for (TaskId task : known(state.previousActiveTasks(), snapshot)) {
            boolean restores = snapshot.stateful().contains(task) && !snapshot.isRunning(task, process);
            ObjectNode copy = tasks.putObject(task.toString());
            copy.put("role", "active");
            copy.put("state", restores ? "restoring" : "running");
            if (restores) {
                lag(copy, task, process, snapshot);
            }
        }
        for (TaskId task : known(state.previousStandbyTasks(), snapshot)) {
            if (!state.previousActiveTasks().contains(task)) {
                ObjectNode copy = tasks.putObject(task.toString());
                copy.put("role", "none");
                lag(copy, task, process, snapshot);
            }
        }
    }

    /** Without what an application had once: its state stays on disks for a while. */
    private static List<TaskId> known(Collection<TaskId> tasks, Snapshot snapshot) {
        return tasks.stream().filter(snapshot.tasks()::containsKey).toList();
    }

    private static void lag(ObjectNode copy, TaskId task, ProcessId process, Snapshot snapshot) {
        snapshot.lag(task, process).ifPresent(lag -> copy.put("lag", lag));
    }

    private static void addAll(ArrayNode names, Collection<TaskId> tasks) {
        tasks.stream().sorted().map(TaskId::toString).forEach(names::add);
    }
}
