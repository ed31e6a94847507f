package io.batonpass.streams;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeSet;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ProcessId;

/** A coordinator's answer, read so strictly that what is left can be carried out. */
final class Advice {
    static final String BY = "Batonpass";

    private static final ObjectMapper JSON = new ObjectMapper()
        .enable(DeserializationFeature.FAIL_ON_READING_DUP_TREE_KEY)
        .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);
    private static final long MAX_FOLLOWUP_MS = Duration.ofDays(1).toMillis();

    private final Snapshot snapshot;
    private final JsonNode answer;
    private final Map<String, TaskId> taskIds = new HashMap<>();
    private final Set<TaskId> given = new TreeSet<>();

    private Advice(Snapshot snapshot, JsonNode answer) {
        this.snapshot = snapshot;
        this.answer = answer;
        snapshot.tasks().keySet().forEach(task -> taskIds.put(task.toString(), task));
    }

    /**
     * Return the decision of an answer that names every process, and every task once as active.
     *
     * @throws NoAdvice if it is anything else
     */
    static Decision read(byte[] body, Snapshot snapshot) throws NoAdvice {
        JsonNode answer;
        try {
            answer = JSON.readTree(body);
        } catch (IOException error) {
            throw new NoAdvice("the answer is no JSON: " + Words.shown(String.valueOf(error.getMessage())));
        }
        return new Advice(snapshot, answer).decision();
    }

    private Decision decision() throws NoAdvice {
        JsonNode assignment = answer.get("assignment");
        if (assignment == null || !assignment.isObject()) {
            throw new NoAdvice("the answer has no assignment");
        }
        SortedMap<ProcessId, Decision.Tasks> tasks = Decision.nothingYet(snapshot.processes().keySet());
        for (ProcessId process : tasks.keySet()) {
            JsonNode given = assignment.get(Snapshot.name(process));
            if (given == null || !given.isObject()) {
                throw new NoAdvice("the answer does not name the process " + Snapshot.name(process));
            }
            read(process, given, tasks.get(process));
        }
        if (assignment.size() > tasks.size()) {
            throw new NoAdvice("the answer names " + assignment.size() + " processes where there are " + tasks.size());
        }
        for (TaskId task : snapshot.tasks().keySet()) {
            if (!given.contains(task)) {
                throw new NoAdvice("the answer gives the task " + task + " to nobody");
            }
        }
        return new Decision(BY, tasks, followup(), answer.path("followup_everyone").asBoolean(false));
    }

    private void read(ProcessId process, JsonNode node, Decision.Tasks tasks) throws NoAdvice {
        for (TaskId task : named(node, "active")) {
            if (!given.add(task)) {
                throw new NoAdvice("the answer has two actives of the task " + task);
            }
            tasks.active().add(task);
        }
        for (String role : new String[] {"standby", "warmup"}) {
            for (TaskId task : named(node, role)) {
                if (!snapshot.stateful().contains(task)) {
                    throw new NoAdvice("the answer has a " + role + " of the task " + task + ", which has no state");
                }
                if (tasks.active().contains(task) || !tasks.copies().add(task)) {
                    throw new NoAdvice("the answer has two copies of the task " + task + " on the process "
                        + Snapshot.name(process));
                }
            }
        }
    }

    private Set<TaskId> named(JsonNode node, String role) throws NoAdvice {
        Set<TaskId> named = new TreeSet<>();
        JsonNode list = node.path(role);
        if (list.isMissingNode()) {
            return named;
        }
        if (!list.isArray()) {
            throw new NoAdvice("the answer's " + role + " is no list");
        }
        for (Iterator<JsonNode> each = list.elements(); each.hasNext(); ) {
            JsonNode name = each.next();
            TaskId task = name.isTextual() ? taskIds.get(name.textValue()) : null;
            if (task == null) {
                throw new NoAdvice("the answer names an unknown task " + Words.shown(name.asText()));
            }
            if (!named.add(task)) {
                throw new NoAdvice("the answer names the task " + task + " twice in a list");
            }
        }
        return named;
    }

    private Optional<Duration> followup() throws NoAdvice {
        JsonNode followup = answer.path("followup_ms");
        if (followup.isMissingNode() || followup.isNull()) {
            return Optional.empty();
        }
        boolean good = followup.isIntegralNumber() && followup.canConvertToLong()
            && followup.longValue() >= 0 && followup.longValue() <= MAX_FOLLOWUP_MS;
        if (!good) {
            throw new NoAdvice("the answer's followup_ms is not from 0 to " + MAX_FOLLOWUP_MS);
        }
        return Optional.of(Duration.ofMillis(followup.longValue()));
    }
}
