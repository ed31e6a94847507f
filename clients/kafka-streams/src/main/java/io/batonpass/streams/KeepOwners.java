package io.batonpass.streams;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.SortedMap;
import java.util.function.ToDoubleFunction;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsState;
import org.apache.kafka.streams.processor.assignment.ProcessId;

/**
 * What is done without an answer: owners keep what they have, and what has no owner goes to the copy that lacks least.
 *
 * <p>Copies stay too, as many as the application is configured to have. More are not made: whether a copy is a standby, a
 * warmup or what a former owner left on its disk is known to the coordinator alone.
 */
final class KeepOwners {
    static final String BY = "no coordinator: owners keep their tasks";

    private final Snapshot snapshot;
    private final SortedMap<ProcessId, Decision.Tasks> tasks;
    private final Map<TaskId, List<ProcessId>> owners = new HashMap<>();
    private final Map<TaskId, List<ProcessId>> holders = new HashMap<>();

    private KeepOwners(Snapshot snapshot) {
        this.snapshot = snapshot;
        this.tasks = Decision.nothingYet(snapshot.processes().keySet());
        snapshot.processes().forEach((process, state) -> {
            state.previousActiveTasks().forEach(task -> add(owners, task, process));
            state.previousStandbyTasks().forEach(task -> add(holders, task, process));
        });
    }

    static Decision decide(Snapshot snapshot, Duration followup) {
        KeepOwners keep = new KeepOwners(snapshot);
        keep.actives();
        keep.copies();
        return new Decision(BY, keep.tasks, Optional.of(followup), false);
    }

    private void actives() {
        List<TaskId> ownerless = new ArrayList<>();
        for (TaskId task : snapshot.tasks().keySet()) {
            List<ProcessId> of = owners.getOrDefault(task, List.of());
            if (of.isEmpty()) {
                ownerless.add(task);
            } else {
                give(task, of);
            }
        }
        ownerless.forEach(task -> give(task, List.copyOf(tasks.keySet())));
    }

    /** Give a task to the least lag, then to the fewest actives for each thread, then to the first name. */
    private void give(TaskId task, List<ProcessId> candidates) {
        ToDoubleFunction<ProcessId> load = process -> {
            KafkaStreamsState state = snapshot.processes().get(process);
            return (double) tasks.get(process).active().size() / Math.max(1, state.numProcessingThreads());
        };
        Comparator<ProcessId> best = byLag(task).thenComparingDouble(load).thenComparing(Comparator.naturalOrder());
        candidates.stream().min(best).ifPresent(process -> tasks.get(process).active().add(task));
    }

    private Comparator<ProcessId> byLag(TaskId task) {
        return Comparator.comparingLong(process -> snapshot.stateful().contains(task) ? snapshot.rank(task, process) : 0);
    }

    /** Keep the standbys that are asked for, those that lack least, and beyond them as many copies as may warm up. */
    private void copies() {
        record Copy(TaskId task, ProcessId process) { }

        List<Copy> spare = new ArrayList<>();
        for (TaskId task : snapshot.stateful()) {
            List<ProcessId> best = holders.getOrDefault(task, List.of()).stream()
                .filter(process -> !tasks.get(process).active().contains(task))
                .sorted(byLag(task).thenComparing(Comparator.naturalOrder()))
                .toList();
            int standbys = Math.min(Math.max(0, snapshot.configs().numStandbyReplicas()), best.size());
            best.subList(0, standbys).forEach(process -> tasks.get(process).copies().add(task));
            best.subList(standbys, best.size()).forEach(process -> spare.add(new Copy(task, process)));
        }
        spare.stream()
            .sorted(Comparator.comparingLong(copy -> snapshot.rank(copy.task(), copy.process())))
            .limit(Math.max(0, snapshot.configs().maxWarmupReplicas()))
            .forEach(copy -> tasks.get(copy.process()).copies().add(copy.task()));
    }

    private static void add(Map<TaskId, List<ProcessId>> to, TaskId task, ProcessId process) {
        to.computeIfAbsent(task, each -> new ArrayList<>()).add(process);
    }
}
