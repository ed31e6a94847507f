package io.batonpass.streams;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsAssignment;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsAssignment.AssignedTask;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.assignment.TaskAssignor.TaskAssignment;

/**
 * An assignor's class alone, without instances: called again and again, as its rebalances would, until it rests.
 *
 * <p>What Kafka Streams does with each answer is played here: an active that goes to another process is taken from its
 * owner in one rebalance and granted in the next, which follows at once. A copy is caught up when it is looked at next.
 * Ten processes come to rest with all copies caught up, then one more joins. A line of JSON says what that came to.
 *
 * <pre>
 * java -cp ... io.batonpass.streams.Rounds --mode off|assign [--standbys 0] [--seed 0] [--url URL] [--token TOKEN]
 * </pre>
 */
public final class Rounds {
    private static final int TASKS = 100;
    private static final int PROCESSES = 10;
    private static final int MOST_ROUNDS = 2_000;

    private final BatonpassTaskAssignor assignor = new BatonpassTaskAssignor();
    private final int standbys;
    private final Set<Integer> processes = new HashSet<>();
    private final Map<TaskId, ProcessId> owners = new TreeMap<>();
    private final Map<ProcessId, Map<TaskId, Boolean>> copies = new HashMap<>();
    private final Map<TaskId, ProcessId> lastOwners = new HashMap<>();
    private int looks;
    private int handovers;

    private Rounds(Map<String, ?> configs, int standbys) {
        assignor.configure(configs);
        this.standbys = standbys;
    }

    /** Play, and say what came of it. */
    public static void main(String[] words) {
        Map<String, String> given = new HashMap<>();
        for (int at = 0; at + 1 < words.length; at += 2) {
            given.put(words[at].substring(2), words[at + 1]);
        }
        Map<String, Object> configs = new HashMap<>(Map.of(
            "application.id", "alone-" + given.getOrDefault("standbys", "0") + "-" + given.getOrDefault("seed", "0"),
            "batonpass.mode", given.get("mode"), "batonpass.url", given.getOrDefault("url", "http://127.0.0.1:1"),
            "batonpass.timeout.ms", 10_000));
        if (given.containsKey("token")) {
            configs.put("batonpass.token", given.get("token"));
        }
        Random random = new Random(Long.parseLong(given.getOrDefault("seed", "0")));
        Rounds rounds = new Rounds(configs, Integer.parseInt(given.getOrDefault("standbys", "0")));
        while (rounds.processes.size() < PROCESSES) {
            rounds.processes.add(random.nextInt(Integer.MAX_VALUE));
        }
        rounds.play();
        rounds.catchUp();
        Map<TaskId, ProcessId> before = Map.copyOf(rounds.owners);
        rounds.looks = 0;
        rounds.handovers = 0;
        rounds.processes.add(random.nextInt(Integer.MAX_VALUE));
        rounds.play();
        long moved = before.keySet().stream().filter(task -> !before.get(task).equals(rounds.owners.get(task))).count();
        System.out.println("{\"moved\": " + moved + ", \"handovers\": " + rounds.handovers + ", \"looks\": " + rounds.looks + "}");
        long unanswered = Counters.of(String.valueOf(configs.get("application.id"))).getNoAnswers();
        if (unanswered > 0) {
            throw new IllegalStateException(unanswered + " questions were not answered");
        }
    }

    private void play() {
        for (int round = 0; round < MOST_ROUNDS; round++) {
            TaskAssignment assignment = assignor.assign(application().state());
            boolean takes = carryOut(assignment);
            if (takes) {
                continue;
            }
            if (assignment.assignment().stream().noneMatch(each -> each.followupRebalanceDeadline().isPresent())) {
                return;
            }
            looks++;
            catchUp();
        }
        throw new IllegalStateException("it did not come to rest");
    }

    private void catchUp() {
        copies.values().forEach(each -> each.replaceAll((task, caughtUp) -> true));
    }

    private Applications application() {
        Applications application = new Applications().standbys(standbys).warmups(2);
        for (int partition = 0; partition < TASKS; partition++) {
            application.stateful("0_" + partition);
        }
        for (int process : processes) {
            Applications.Member member = application.member(process);
            owners.forEach((task, owner) -> {
                if (owner.equals(member.id)) {
                    member.running(task.toString());
                }
            });
            copies.getOrDefault(member.id, Map.of()).forEach((task, caughtUp) ->
                member.copy(task.toString(), caughtUp ? 0 : Applications.WHOLE_LOG));
        }
        return application;
    }

    /** Do what was decided; return whether an active was taken from its owner, so that another rebalance follows at once. */
    private boolean carryOut(TaskAssignment assignment) {
        Map<TaskId, ProcessId> taken = new TreeMap<>();
        for (KafkaStreamsAssignment each : assignment.assignment()) {
            Map<TaskId, Boolean> had = copies.getOrDefault(each.processId(), Map.of());
            Map<TaskId, Boolean> has = new TreeMap<>();
            for (AssignedTask task : each.tasks().values()) {
                if (task.type() == AssignedTask.Type.STANDBY) {
                    has.put(task.id(), had.getOrDefault(task.id(), false));
                } else if (!each.processId().equals(owners.get(task.id()))) {
                    if (owners.containsKey(task.id())) {
                        taken.put(task.id(), owners.get(task.id()));
                        // Whoever is to have it keeps what it has of it.
                        if (had.containsKey(task.id())) {
                            has.put(task.id(), had.get(task.id()));
                        }
                    } else {
                        owners.put(task.id(), each.processId());
                        if (!each.processId().equals(lastOwners.put(task.id(), each.processId()))) {
                            handovers++;
                        }
                    }
                }
            }
            copies.put(each.processId(), has);
        }
        taken.forEach((task, owner) -> {
            owners.remove(task);
            copies.get(owner).put(task, true);
        });
        return !taken.isEmpty();
    }
}
