package io.batonpass.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.streams.processor.assignment.ApplicationState;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class AdviceTest {
    private static final String GOOD = """
        {"group": "app", "generation": 9, "mode": "assign",
         "assignment": {"P1": {"active": ["0_0", "1_0"], "standby": ["0_1"], "warmup": []},
                        "P2": {"active": ["0_1"], "standby": [], "warmup": ["0_0"]}},
         "followup_ms": 150, "followup_everyone": true, "at_rest": false, "moves": 3, "lower_bound": 3,
         "held_back": [], "reasons": [{"task": "0_0", "code": "stays", "detail": "…"}]}
        """;

    private static Applications application() {
        Applications application = new Applications().stateful("0_0", "0_1").stateless("1_0");
        application.member(1).running("0_0");
        application.member(2).running("0_1");
        return application;
    }

    private static byte[] bytes(String answer) {
        return answer.replace("P1", Applications.name(1)).replace("P2", Applications.name(2))
            .getBytes(StandardCharsets.UTF_8);
    }

    private static Decision read(String answer) throws NoAdvice {
        return Advice.read(bytes(answer), application().snapshot());
    }

    private static NoAdvice refused(String answer) {
        return assertThrows(NoAdvice.class, () -> read(answer));
    }

    @Test
    void aCompleteAnswerIsCarriedOut() throws NoAdvice {
        Decision decision = read(GOOD);
        assertEquals(Applications.ids("0_0", "1_0"), decision.tasks().get(Applications.process(1)).active());
        assertEquals(Applications.ids("0_1"), decision.tasks().get(Applications.process(1)).copies());
        assertEquals(Applications.ids("0_1"), decision.tasks().get(Applications.process(2)).active());
        assertEquals(Applications.ids("0_0"), decision.tasks().get(Applications.process(2)).copies());
        assertEquals(Optional.of(Duration.ofMillis(150)), decision.followup());
        assertTrue(decision.everyone());
        ApplicationState state = application().state();
        Applications.assertComplete(state, decision.assignment(Optional.empty()));
    }

    @Test
    void atRestThereIsNoFollowup() throws NoAdvice {
        assertEquals(Optional.empty(), read(GOOD.replace("150", "null")).followup());
        assertEquals(Optional.empty(), read(GOOD.replace("\"followup_ms\": 150,", "")).followup());
        assertFalse(read(GOOD.replace(", \"followup_everyone\": true", "")).everyone());
    }

    @Test
    void listsThatAreEmptyMayBeLeftOut() throws NoAdvice {
        Decision decision = read("""
            {"assignment": {"P1": {"active": ["0_0", "0_1", "1_0"]}, "P2": {}}}""");
        assertEquals(Applications.ids(), decision.tasks().get(Applications.process(2)).active());
    }

    @ParameterizedTest
    @ValueSource(strings = {
        "", " ", "null", "[]", "7", "\"text\"", "{", "not json", "{} {}", "<html></html>",
        "{}", "{\"assignment\": null}", "{\"assignment\": []}", "{\"assignment\": {}}",
        // A process that is not named, one too many, one twice.
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_1\", \"1_0\"]}}}",
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_1\", \"1_0\"]}, \"P2\": {}, \"P3\": {}}}",
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_1\", \"1_0\"]}, \"P2\": {}, \"P2\": {}}}",
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_1\", \"1_0\"]}, \"P2\": null}}",
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_1\", \"1_0\"]}, \"P2\": []}}",
        // A task that nobody gets, that two get, that one gets twice, and that nobody knows.
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_1\"]}, \"P2\": {}}}",
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_1\", \"1_0\"]}, \"P2\": {\"active\": [\"0_0\"]}}}",
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_0\", \"0_1\", \"1_0\"]}, \"P2\": {}}}",
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_1\", \"1_0\", \"0_2\"]}, \"P2\": {}}}",
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_1\", \"1_0\", 0]}, \"P2\": {}}}",
        "{\"assignment\": {\"P1\": {\"active\": \"0_0\"}, \"P2\": {}}}",
        "{\"assignment\": {\"P1\": {\"active\": {\"0_0\": 1}}, \"P2\": {}}}",
        // Copies: beside the active, twice, of a task without state, of an unknown one.
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_1\", \"1_0\"], \"standby\": [\"0_0\"]}, \"P2\": {}}}",
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_1\", \"1_0\"], \"warmup\": [\"0_0\"]}, \"P2\": {}}}",
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_1\", \"1_0\"]},"
            + " \"P2\": {\"standby\": [\"0_0\"], \"warmup\": [\"0_0\"]}}}",
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_1\", \"1_0\"]}, \"P2\": {\"standby\": [\"1_0\"]}}}",
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_1\", \"1_0\"]}, \"P2\": {\"standby\": [\"0_9\"]}}}",
        "{\"assignment\": {\"P1\": {\"active\": [\"0_0\", \"0_1\", \"1_0\"]}, \"P2\": {\"standby\": null}}}",
    })
    void whatIsNotCompleteIsNoAnswer(String answer) {
        refused(answer);
    }

    @ParameterizedTest
    @ValueSource(strings = {"-1", "1.5", "\"150\"", "true", "86400001", "99999999999999999999999", "{}"})
    void aFollowupIsSoManyMilliseconds(String followup) {
        refused(GOOD.replace("150", followup));
    }

    @Test
    void deepNestingIsNoAnswer() {
        refused("[".repeat(100_000));
        refused("{\"assignment\":".repeat(100_000));
    }

    @Test
    void namesOfAnAnswerDoNotFillTheLog() {
        String message = refused(GOOD.replace("\"1_0\"", "\"1_0\", \"\\n" + "x".repeat(100_000) + "\"")).getMessage();
        assertTrue(message.length() < 400 && !message.contains("\n"), message);
    }

    @Test
    void answersWithFaultsAreRefusedOrComplete() throws Exception {
        Random random = new Random(21);
        String letters = "{}[]\",:0_1P2n\\ r";
        int complete = 0;
        for (int round = 0; round < 5_000; round++) {
            StringBuilder answer = new StringBuilder(new String(bytes(GOOD), StandardCharsets.UTF_8));
            for (int faults = 1 + random.nextInt(3); faults > 0; faults--) {
                int at = random.nextInt(answer.length());
                switch (random.nextInt(4)) {
                    case 0 -> answer.deleteCharAt(at);
                    case 1 -> answer.insert(at, letters.charAt(random.nextInt(letters.length())));
                    case 2 -> answer.setCharAt(at, letters.charAt(random.nextInt(letters.length())));
                    default -> answer.setLength(at + 1);
                }
            }
            try {
                Decision decision = Advice.read(
                    answer.toString().getBytes(StandardCharsets.UTF_8), application().snapshot());
                Applications.assertComplete(application().state(), decision.assignment(Optional.empty()));
                complete++;
            } catch (NoAdvice refused) {
                // As it should be.
            }
        }
        assertTrue(complete > 50, "faults in what is not read do no harm: " + complete);
    }

    @Test
    void whatComesBackIsReadForApplicationsOfAllShapes() throws Exception {
        Random random = new Random(22);
        for (int round = 0; round < 1_000; round++) {
            Applications application = Applications.random(random);
            Decision kept = KeepOwners.decide(application.snapshot(), Duration.ofSeconds(2));
            Decision read = Advice.read(StubCoordinator.answer(kept), application.snapshot());
            assertEquals(kept.tasks(), read.tasks());
        }
    }
}
