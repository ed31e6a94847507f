package io.batonpass.streams;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class CoordinatorCheckTest {
    private static Map<String, Object> asking(String urls) {
        return new HashMap<>(Map.of("application.id", "app%#1", "batonpass.url", urls, "batonpass.token", "bpt_x",
            "task.assignor.class", BatonpassTaskAssignor.class.getName()));
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', value = {
        "200 | {\"config\": {\"kafka_streams\": true}}",
        "200 | {\"config\": {\"kafka_streams\": true, \"application_id\": \"\"}}",
        "200 | {\"config\": {\"kafka_streams\": true, \"application_id\": \"app%#1\"}}",
        "404 | {\"type\": \"unknown-group\"}",
        "429 | {\"type\": \"limit-exceeded\"}",
        "503 | {\"type\": \"coordinator-loading\"}",
        "200 | no coordinator",
    })
    void whoeverWouldBeAnsweredOrGetsNoWordMayStart(int status, String answer) throws Exception {
        try (StubCoordinator stub = StubCoordinator.saying(status, answer.getBytes(StandardCharsets.UTF_8))) {
            assertDoesNotThrow(() -> BatonpassTaskAssignor.check(asking(stub.url())));
            StubCoordinator.Question question = stub.next();
            assertEquals("/v1/groups/app%25%231", question.path());
            assertEquals("Bearer bpt_x", question.token());
        }
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', value = {
        "200 | {\"config\": {\"kafka_streams\": false}} | members that heartbeat",
        "200 | {\"config\": {\"kafka_streams\": true, \"application_id\": \"app\"}} | the group of the application 'app'",
        "401 | {\"type\": \"unauthenticated\", \"detail\": \"the token is gone\"} | it answered 401: the token is gone",
        "403 | {\"type\": \"forbidden\"} | forbidden",
        "404 | nothing here | it answered 404",
        "422 | {\"type\": \"invalid-request\"} | invalid-request",
        "307 | over there | it answered 307",
    })
    void whatACoordinatorWouldRefuseIsSaidBeforeTheStart(int status, String answer, String words) {
        try (StubCoordinator stub = StubCoordinator.saying(status, answer.getBytes(StandardCharsets.UTF_8))) {
            String message = assertThrows(
                ConfigException.class, () -> BatonpassTaskAssignor.check(asking(stub.url()))).getMessage();
            assertTrue(message.contains(words), message);
        }
    }

    @Test
    void theNextCoordinatorIsAskedWhereOneIsAwayAndNobodyWhereBatonpassIsOff() {
        try (StubCoordinator stub = StubCoordinator.saying(403, new byte[0])) {
            Map<String, Object> configs = asking("http://127.0.0.1:1," + stub.url());
            assertThrows(ConfigException.class, () -> BatonpassTaskAssignor.check(configs));
            configs.put("batonpass.mode", "off");
            assertDoesNotThrow(() -> BatonpassTaskAssignor.check(configs));
        }
    }
}
