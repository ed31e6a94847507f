package io.batonpass.streams;

import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
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

    private static final long MAX_FOLLOWUP_MS = Duration.ofDays(1).toMillis();

    private final Snapshot snapshot;
    private final Map<?, ?> answer;
    private final Map<String, TaskId> taskIds = new HashMap<>();
    private final Set<TaskId> given = new TreeSet<>();

    private Advice(Snapshot snapshot, Map<?, ?> answer) {
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
        Object answer;
        try {
            answer = Json.read(body);
        } catch (IOException error) {
            throw new NoAdvice("the answer is no JSON: " + Words.shown(String.valueOf(error.getMessage())));
        }
        return new Advice(snapshot, answer instanceof Map<?, ?> map ? map : Map.of()).decision();
    }

    private Decision decision() throws NoAdvice {
        if (!(answer.get("assignment") instanceof Map<?, ?> assignment)) {
            throw new NoAdvice("the answer has no assignment");
        }
        SortedMap<ProcessId, Decision.Tasks> tasks = Decision.nothingYet(snapshot.processes().keySet());
        for (ProcessId process : tasks.keySet()) {
            if (!(assignment.get(Snapshot.id(process)) instanceof Map<?, ?> roles)) {
                throw new NoAdvice("the answer does not name the process " + Snapshot.id(process));
            }
            read(process, roles, tasks.get(process));
        }
        if (assignment.size() > tasks.size()) {
            throw new NoAdvice("the answer names " + assignment.size() + " processes where there are " + tasks.size());
        }
        for (TaskId task : snapshot.tasks().keySet()) {
            if (!given.contains(task)) {
                throw new NoAdvice("the answer gives the task " + task + " to nobody");
            }
        }
        return new Decision(BY, tasks, followup(), Boolean.TRUE.equals(answer.get("followup_everyone")));
    }

    private void read(ProcessId process, Map<?, ?> roles, Decision.Tasks tasks) throws NoAdvice {
        for (TaskId task : named(roles, "active")) {
            if (!given.add(task)) {
                throw new NoAdvice("the answer has two actives of the task " + task);
            }
            tasks.active().add(task);
        }
        for (String role : new String[] {"standby", "warmup"}) {
            for (TaskId task : named(roles, role)) {
                if (!snapshot.stateful().contains(task)) {
                    throw new NoAdvice("the answer has a " + role + " of the task " + task + ", which has no state");
                }
                if (tasks.active().contains(task) || !tasks.copies().add(task)) {
                    throw new NoAdvice("the answer has two copies of the task " + task + " on the process "
                        + Snapshot.id(process));
                }
            }
        }
    }

    private Set<TaskId> named(Map<?, ?> roles, String role) throws NoAdvice {
        Set<TaskId> named = new TreeSet<>();
        if (!roles.containsKey(role)) {
            return named;
        }
        if (!(roles.get(role) instanceof List<?> names)) {
            throw new NoAdvice("the answer's " + role + " is no list");
        }
        for (Object name : names) {
            TaskId task = name instanceof String ? taskIds.get(name) : null;
            if (task == null) {
                throw new NoAdvice("the answer names an unknown task " + Words.shown(String.valueOf(name)));
            }
            if (!named.add(task)) {
                throw new NoAdvice("the answer names the task " + task + " twice in a list");
            }
        }
        return named;
    }

    private Optional<Duration> followup() throws NoAdvice {
        Object followup = answer.get("followup_ms");
        if (followup == null) {
            return Optional.empty();
        }
        boolean whole = followup instanceof Integer || followup instanceof Long;
        long millis = whole ? ((Number) followup).longValue() : -1;
        if (millis < 0 || millis > MAX_FOLLOWUP_MS) {
            throw new NoAdvice("the answer's followup_ms is not from 0 to " + MAX_FOLLOWUP_MS);
        }
        return Optional.of(Duration.ofMillis(millis));
    }
}
