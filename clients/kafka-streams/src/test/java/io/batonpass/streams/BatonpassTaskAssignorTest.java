package io.batonpass.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import javax.management.ObjectName;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ApplicationState;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsAssignment;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsAssignment.AssignedTask;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.assignment.TaskAssignor.TaskAssignment;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class BatonpassTaskAssignorTest {
    /** A name that no other test counts under. */
    private final String group = "app-" + UUID.randomUUID();

    /** Everything runs on the first process; Kafka's own assignor would warm copies up on the second. */
    private static Applications uneven() {
        Applications application = new Applications().stateful("0_0", "0_1", "0_2", "0_3");
        application.member(1).running("0_0", "0_1", "0_2", "0_3").consumer("a-StreamThread-1-consumer-x");
        application.member(2).consumer("b-StreamThread-1-consumer-y");
        return application;
    }

    private static Decision even(boolean everyone, Duration followup) {
        TreeMap<ProcessId, Decision.Tasks> tasks = new TreeMap<>();
        tasks.put(Applications.process(1), new Decision.Tasks(Applications.ids("0_0", "0_1"), Applications.ids()));
        tasks.put(Applications.process(2), new Decision.Tasks(Applications.ids("0_2", "0_3"), Applications.ids("0_0")));
        return new Decision("test", tasks, Optional.ofNullable(followup), everyone);
    }

    private TaskAssignment assign(Map<String, ?> configs, ApplicationState application) {
        Map<String, Object> all = new HashMap<>(Map.of("application.id", group,
            "client.id", "b-StreamThread-1-consumer", "batonpass.timeout.ms", "10000"));
        all.putAll(configs);
        BatonpassTaskAssignor assignor = new BatonpassTaskAssignor();
        assignor.configure(all);
        TaskAssignment assignment = assignor.assign(application);
        Applications.assertComplete(application, assignment);
        return assignment;
    }

    private TaskAssignment assign(StubCoordinator stub, String mode) {
        return assign(Map.of("batonpass.url", stub.url(), "batonpass.mode", mode), uneven().state());
    }

    private static Map<ProcessId, KafkaStreamsAssignment> byProcess(TaskAssignment assignment) {
        Map<ProcessId, KafkaStreamsAssignment> by = new HashMap<>();
        assignment.assignment().forEach(each -> by.put(each.processId(), each));
        return by;
    }

    private static Set<TaskId> tasks(TaskAssignment assignment, int member, AssignedTask.Type type) {
        Set<TaskId> tasks = new TreeSet<>();
        byProcess(assignment).get(Applications.process(member)).tasks().values().stream()
            .filter(task -> task.type() == type).forEach(task -> tasks.add(task.id()));
        return tasks;
    }

    private static Optional<Duration> followup(TaskAssignment assignment, int member, Instant since) {
        return byProcess(assignment).get(Applications.process(member)).followupRebalanceDeadline()
            .map(deadline -> Duration.between(since, deadline));
    }

    private static void assertAbout(long millis, Optional<Duration> followup) {
        long seen = followup.orElseThrow().toMillis();
        assertTrue(seen >= millis && seen < millis + 15_000, seen + " ms where " + millis + " were meant");
    }

    private Object counted(String attribute) throws Exception {
        return ManagementFactory.getPlatformMBeanServer().getAttribute(
            new ObjectName("batonpass.streams:type=assignor,group=" + ObjectName.quote(group)), attribute);
    }

    private static void assertOwnersKeep(TaskAssignment assignment) {
        assertEquals(Applications.ids("0_0", "0_1", "0_2", "0_3"), tasks(assignment, 1, AssignedTask.Type.ACTIVE));
        assertEquals(Applications.ids(), tasks(assignment, 2, AssignedTask.Type.STANDBY));
    }

    private static void assertKafkas(TaskAssignment assignment) {
        assertEquals(Applications.ids("0_0", "0_1", "0_2", "0_3"), tasks(assignment, 1, AssignedTask.Type.ACTIVE));
        assertEquals(2, tasks(assignment, 2, AssignedTask.Type.STANDBY).size());
    }

    @Test
    void theCoordinatorDecides() throws Exception {
        try (StubCoordinator stub = StubCoordinator.saying(200, StubCoordinator.answer(even(false, null)))) {
            TaskAssignment assignment = assign(stub, "assign");
            assertEquals(Applications.ids("0_0", "0_1"), tasks(assignment, 1, AssignedTask.Type.ACTIVE));
            assertEquals(Applications.ids("0_2", "0_3"), tasks(assignment, 2, AssignedTask.Type.ACTIVE));
            assertEquals(Applications.ids("0_0"), tasks(assignment, 2, AssignedTask.Type.STANDBY));
            assertEquals(Optional.empty(), followup(assignment, 1, Instant.EPOCH));
            assertEquals(Optional.empty(), followup(assignment, 2, Instant.EPOCH));
            StubCoordinator.Question question = stub.next();
            assertEquals("/v1/groups/" + group + "/advice", question.path());
            assertEquals("assign", question.body().get("mode").textValue());
            assertNull(question.token());
            assertEquals(1L, counted("Rebalances"));
            assertEquals(1L, counted("Answers"));
            assertEquals(0L, counted("NoAnswers"));
            assertTrue((long) counted("SlowestAnswerMs") >= (long) counted("LastAnswerMs"));
        }
    }

    @Test
    void theOwnProcessAsksAgainOrEveryProcess() {
        try (StubCoordinator stub = StubCoordinator.saying(200, StubCoordinator.answer(even(false, Duration.ofMinutes(1))))) {
            Instant before = Instant.now();
            TaskAssignment assignment = assign(stub, "assign");
            assertEquals(Optional.empty(), followup(assignment, 1, before));
            assertAbout(60_000, followup(assignment, 2, before));
        }
        try (StubCoordinator stub = StubCoordinator.saying(200, StubCoordinator.answer(even(true, Duration.ofMillis(150))))) {
            Instant before = Instant.now();
            TaskAssignment assignment = assign(stub, "assign");
            assertAbout(150, followup(assignment, 1, before));
            assertAbout(150, followup(assignment, 2, before));
        }
    }

    @Test
    void withoutAnAnswerOwnersKeepAndItAsksAgain() throws Exception {
        try (StubCoordinator stub = StubCoordinator.saying(503, new byte[0])) {
            for (int each = 0; each < 3; each++) {
                Instant before = Instant.now();
                TaskAssignment assignment = assign(stub, "assign");
                assertOwnersKeep(assignment);
                assertEquals(Optional.empty(), followup(assignment, 1, before));
                assertAbout(2_000, followup(assignment, 2, before));
            }
            assertEquals(3L, counted("NoAnswers"));
            assertEquals(3L, counted("NoAnswersInARow"));
            assertTrue(counted("LastNoAnswer").toString().contains("503"));
        }
        try (StubCoordinator stub = StubCoordinator.saying(200, StubCoordinator.answer(even(false, null)))) {
            assign(stub, "assign");
            assertEquals(0L, counted("NoAnswersInARow"));
        }
        try (StubCoordinator stub = StubCoordinator.saying(200, "{}".getBytes(StandardCharsets.UTF_8))) {
            Instant before = Instant.now();
            assertAbout(2_000, followup(assign(stub, "assign"), 2, before));
        }
    }

    @Test
    void silenceHoldsNobodyUp() throws Exception {
        try (StubCoordinator stub = StubCoordinator.silent()) {
            long began = System.nanoTime();
            assertOwnersKeep(assign(Map.of("batonpass.url", stub.url(), "batonpass.timeout.ms", "200"), uneven().state()));
            assertTrue(Duration.ofNanos(System.nanoTime() - began).toSeconds() < 15);
            assertEquals(1L, counted("NoAnswers"));
        }
    }

    @Test
    void moreQuestionsWithoutAnAnswerThanMayWaitAreNoAnswers() throws Exception {
        try (StubCoordinator stub = StubCoordinator.silent()) {
            for (int each = 0; each < 20; each++) {
                assertKafkas(assign(stub, "shadow"));
            }
            assertOwnersKeep(assign(Map.of("batonpass.url", stub.url(), "batonpass.timeout.ms", "100"), uneven().state()));
        }
    }

    @Test
    void anInterruptedThreadStaysInterruptedAndDecides() {
        try (StubCoordinator stub = StubCoordinator.silent()) {
            Thread.currentThread().interrupt();
            TaskAssignment assignment = assign(stub, "assign");
            assertTrue(Thread.interrupted());
            assertOwnersKeep(assignment);
        }
    }

    @Test
    void inTheShadowKafkaDecidesAndTheCoordinatorIsTold() throws Exception {
        try (StubCoordinator stub = StubCoordinator.saying(200, StubCoordinator.answer(even(true, null)))) {
            Instant before = Instant.now();
            TaskAssignment assignment = assign(stub, "shadow");
            assertKafkas(assignment);
            assertEquals(Optional.empty(), followup(assignment, 1, before));
            assertAbout(600_000, followup(assignment, 2, before));
            StubCoordinator.Question question = stub.next();
            assertEquals("shadow", question.body().get("mode").textValue());
            assertEquals("HighAvailabilityTaskAssignor", question.body().get("other").get("assignor").textValue());
            assertEquals(4, question.body().get("other").get("assignment").get(Applications.name(1)).get("active").size());
        }
    }

    @Test
    void inTheShadowNobodyWaitsForTheCoordinator() throws Exception {
        try (StubCoordinator stub = StubCoordinator.silent()) {
            TaskAssignment assignment = assign(
                Map.of("batonpass.url", stub.url(), "batonpass.mode", "shadow"), uneven().state());
            // The decision is here while the coordinator still has not said a word.
            assertKafkas(assignment);
            assertEquals(0L, counted("Answers"));
            stub.next();
        }
    }

    @Test
    void switchedOffNobodyIsAsked() throws Exception {
        try (StubCoordinator stub = StubCoordinator.saying(200, StubCoordinator.answer(even(true, null)))) {
            assertKafkas(assign(stub, "off"));
            assertEquals(0, stub.asked.size());
            assertEquals(1L, counted("Rebalances"));
        }
    }

    @ParameterizedTest
    @CsvSource({"batonpass.mode, on", "batonpass.url, nowhere", "batonpass.timeout.ms, never"})
    void whatIsNotUnderstoodLeavesItToKafka(String key, String value) throws Exception {
        Map<String, String> configs = new HashMap<>(Map.of("batonpass.url", "http://127.0.0.1:1"));
        configs.put(key, value);
        assertKafkas(assign(configs, uneven().state()));
        assertEquals(1L, counted("NoAnswers"));
        // Kafka's assignor decides, so newcomers get tasks.
        assertEquals(0L, counted("NoAnswersInARow"));
        assertTrue(counted("LastNoAnswer").toString().startsWith(key));
    }

    @Test
    void anAssignorThatWasNeverConfiguredDecidesToo() {
        ApplicationState application = uneven().state();
        Applications.assertComplete(application, new BatonpassTaskAssignor().assign(application));
    }

    @ParameterizedTest
    @ValueSource(strings = {"assign", "shadow", "off"})
    void everyApplicationGetsACompleteAssignmentWhateverIsAnswered(String mode) {
        Random random = new Random(41);
        byte[][] answers = {
            new byte[0], "{}".getBytes(StandardCharsets.UTF_8), StubCoordinator.answer(even(true, Duration.ZERO))};
        for (byte[] answer : answers) {
            try (StubCoordinator stub = StubCoordinator.saying(200, answer)) {
                for (int round = 0; round < 20; round++) {
                    assign(Map.of("batonpass.url", stub.url(), "batonpass.mode", mode),
                        Applications.random(random).state());
                }
            }
        }
    }

    @Test
    void noThreadOfItKeepsAProcessAlive() {
        try (StubCoordinator stub = StubCoordinator.saying(200, StubCoordinator.answer(even(true, null)))) {
            assign(stub, "assign");
            Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().startsWith("HttpClient") || thread.getName().startsWith("batonpass"))
                .forEach(thread -> assertTrue(thread.isDaemon(), thread.getName()));
        }
    }

    private static Map<String, Object> good() {
        return new HashMap<>(Map.of("application.id", "app", "batonpass.url", "http://127.0.0.1:1",
            "task.assignor.class", BatonpassTaskAssignor.class.getName()));
    }

    @Test
    void aGoodConfigurationPassesItsCheck() {
        BatonpassTaskAssignor.check(good());
        Map<String, Object> configs = good();
        configs.put("task.assignor.class", BatonpassTaskAssignor.class);
        configs.put("group.protocol", "CLASSIC");
        configs.put("rack.aware.assignment.strategy", "none");
        BatonpassTaskAssignor.check(configs);
    }

    @ParameterizedTest
    @CsvSource({
        "group.protocol, streams, assign",
        "group.protocol, STREAMS, shadow",
        "task.assignor.class, org.example.Other, assign",
        "batonpass.url, '', assign",
        "batonpass.mod, shadow, assign",
        "rack.aware.assignment.strategy, min_traffic, assign",
        "rack.aware.assignment.strategy, min_traffic, shadow",
        "rack.aware.assignment.strategy, balance_subtopology, off",
    })
    void whatWouldNotWorkIsRefusedBeforeTheStart(String key, String value, String mode) {
        Map<String, Object> configs = good();
        configs.put("batonpass.mode", mode);
        configs.put(key, value);
        String message = assertThrows(ConfigException.class, () -> BatonpassTaskAssignor.check(configs)).getMessage();
        assertTrue(message.startsWith(key), message);
    }

    @Test
    void theVersionIsThatOfTheBuild() {
        assertEquals(System.getProperty("plugin.version"), BatonpassTaskAssignor.VERSION);
    }
}
