package io.batonpass.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class CoordinatorTest {
    /** Far longer than a limit of 0.3 s, far shorter than for ever. */
    private static final Duration NOT_HELD_UP = Duration.ofSeconds(15);

    private static Snapshot snapshot() {
        Applications application = new Applications().stateful("0_0");
        application.member(1).running("0_0");
        return application.snapshot();
    }

    private static byte[] good() {
        return StubCoordinator.answer(KeepOwners.decide(snapshot(), Duration.ofSeconds(7)));
    }

    private static Decision ask(Map<String, ?> with, String... urls) throws NoAdvice {
        Map<String, Object> configs = new HashMap<>(with);
        configs.put("batonpass.url", String.join(",", urls));
        configs.putIfAbsent("batonpass.timeout.ms", "300");
        configs.putIfAbsent("batonpass.group", "app");
        return assertTimeoutPreemptively(NOT_HELD_UP,
            () -> Coordinator.ask(Settings.of(configs), "{\"question\": 1}".getBytes(StandardCharsets.UTF_8), snapshot()));
    }

    private static String refused(Map<String, ?> with, String... urls) {
        return assertThrows(NoAdvice.class, () -> ask(with, urls)).getMessage();
    }

    private static Map<String, String> patient() {
        return Map.of("batonpass.timeout.ms", "10000");
    }

    @Test
    void itAsksForTheGroupWithItsToken() throws Exception {
        try (StubCoordinator stub = StubCoordinator.saying(200, good())) {
            Map<String, String> with = Map.of("batonpass.group", "größe+1%", "batonpass.token", "word",
                "batonpass.timeout.ms", "10000");
            Decision decision = ask(with, stub.url() + "/under/");
            assertEquals(Applications.ids("0_0"), decision.tasks().get(Applications.process(1)).active());
            StubCoordinator.Question question = stub.next();
            assertEquals("/under/v1/groups/gr%C3%B6%C3%9Fe%2B1%25/advice", question.path());
            assertEquals("Bearer word", question.token());
            assertEquals(1, question.body().get("question").intValue());
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {201, 301, 400, 401, 403, 409, 422, 429, 500, 503})
    void anyOtherStatusIsNoAnswer(int status) {
        byte[] problem = "{\"title\": \"no\", \"detail\": \"that is why\"}".getBytes(StandardCharsets.UTF_8);
        try (StubCoordinator stub = StubCoordinator.saying(status, problem)) {
            String message = refused(patient(), stub.url());
            // For 401 and for redirections the JDK has no body.
            boolean hasBody = status >= 400 && status != 401;
            String words = "it answered " + status + ": ";
            assertTrue(message.endsWith(words + "that is why") == hasBody && message.contains(words), message);
            assertTrue(message.length() > message.indexOf(words) + words.length(), "it says no reason: " + message);
        }
    }

    @Test
    void whatIsNoProblemInJsonIsShownAsItIs() {
        try (StubCoordinator stub = StubCoordinator.saying(502, "<b>Bad gateway</b>\n".getBytes(StandardCharsets.UTF_8))) {
            assertTrue(refused(patient(), stub.url()).endsWith("it answered 502: <b>Bad gateway</b>?"));
        }
    }

    @Test
    void anUnknownTokenIsSaidToBeOneAndAMissingOneToo(@TempDir Path folder) throws Exception {
        try (StubCoordinator stub = StubCoordinator.saying(401, new byte[0])) {
            assertTrue(refused(patient(), stub.url()).endsWith(
                "it answered 401: it requires a token; name a file with one by batonpass.token.file"));
            Map<String, String> with = new HashMap<>(patient());
            with.put("batonpass.token", "old");
            assertTrue(refused(with, stub.url()).endsWith(
                "it answered 401: the token is unknown, revoked or expired; put another one into batonpass.token"));
            with.put("batonpass.token.file", Files.writeString(folder.resolve("token"), "older").toString());
            assertTrue(refused(with, stub.url()).endsWith("put another one into the file of batonpass.token.file"));
        }
    }

    @Test
    void aRedirectionSaysWhereTo() {
        try (StubCoordinator stub = new StubCoordinator(question -> {
            question.exchange().getResponseHeaders().set("Location", "https://elsewhere/v1");
            question.answer(308, new byte[0]);
        })) {
            assertTrue(refused(patient(), stub.url()).endsWith(
                "it answered 308: it refers to https://elsewhere/v1, which is not followed; batonpass.url has to name it"));
        }
    }

    @Test
    void nobodyThereIsNoAnswer() throws Exception {
        int port;
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = socket.getLocalPort();
        }
        assertTrue(refused(patient(), "http://127.0.0.1:" + port).contains("ConnectException"));
        refused(patient(), "http://no-such-host.invalid:1");
    }

    @Test
    void silenceEndsAtTheLimit() {
        try (StubCoordinator stub = StubCoordinator.silent()) {
            assertTrue(refused(Map.of(), stub.url()).contains("(batonpass.timeout.ms=300)"));
            assertFalse(refused(Map.of("batonpass.mode", "shadow"), stub.url()).contains("batonpass.timeout.ms"));
        }
    }

    @Test
    void anAnswerThatComesInDropsEndsAtTheLimit() {
        byte[] answer = good();
        try (StubCoordinator stub = new StubCoordinator(question -> {
            question.exchange().sendResponseHeaders(200, answer.length);
            for (byte drop : answer) {
                question.exchange().getResponseBody().write(drop);
                question.exchange().getResponseBody().flush();
                Thread.sleep(500);
            }
        })) {
            assertTrue(refused(Map.of(), stub.url()).contains("no answer within"));
        }
    }

    /** A question that is longer than what a connection holds is not written to its end. */
    @Test
    void aServerThatDoesNotReadHoldsNobodyUp() throws Exception {
        try (ServerSocket socket = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
            Map<String, String> with = Map.of("batonpass.group", "app", "batonpass.timeout.ms", "300",
                "batonpass.url", "http://127.0.0.1:" + socket.getLocalPort());
            byte[] question = new byte[64 << 20];
            NoAdvice refused = assertTimeoutPreemptively(NOT_HELD_UP, () -> assertThrows(
                NoAdvice.class, () -> Coordinator.ask(Settings.of(with), question, snapshot())));
            assertTrue(refused.getMessage().contains("no answer within"), refused.getMessage());
        }
    }

    @Test
    void anAnswerWithoutEndIsGivenUp() {
        byte[] much = new byte[1 << 16];
        try (StubCoordinator stub = new StubCoordinator(question -> {
            question.exchange().sendResponseHeaders(200, 0);
            while (true) {
                question.exchange().getResponseBody().write(much);
            }
        })) {
            Map<String, String> with = Map.of("batonpass.timeout.ms", "10000", "batonpass.max.answer.bytes", "1000000");
            String message = refused(with, stub.url());
            assertTrue(message.contains("longer than 1000000 bytes (batonpass.max.answer.bytes)"), message);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {
        "", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "SSH-2.0-OpenSSH_9\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    })
    void aConnectionThatEndsOrSpeaksSomethingElseIsNoAnswer(String said) throws Exception {
        try (ServerSocket socket = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
            Thread closer = new Thread(() -> {
                while (true) {
                    try (Socket one = socket.accept(); OutputStream out = one.getOutputStream()) {
                        one.getInputStream().read(new byte[100]);
                        out.write(said.getBytes(StandardCharsets.US_ASCII));
                    } catch (Exception over) {
                        return;
                    }
                }
            });
            closer.start();
            refused(Map.of(), "http://127.0.0.1:" + socket.getLocalPort());
        }
    }

    @Test
    void theNextIsAskedWithinTheOneLimit() throws Exception {
        try (StubCoordinator silent = StubCoordinator.silent();
             StubCoordinator broken = StubCoordinator.saying(200, "{}".getBytes(StandardCharsets.UTF_8));
             StubCoordinator good = StubCoordinator.saying(200, good())) {
            Map<String, String> with = Map.of("batonpass.timeout.ms", "6000");
            assertEquals(Duration.ofSeconds(7), ask(with, silent.url(), broken.url(), good.url()).followup().orElseThrow());
            assertEquals(1, silent.asked.size());
            assertEquals(1, broken.asked.size());
            String message = refused(Map.of(), silent.url(), broken.url());
            assertTrue(message.contains(silent.url() + ": no answer") && message.contains("no assignment"), message);
        }
    }

    @Test
    void aTokenThatCannotBeReadOrSentIsNoAnswer() {
        try (StubCoordinator stub = StubCoordinator.saying(200, good())) {
            assertTrue(refused(Map.of("batonpass.token.file", "no/such/file"), stub.url()).contains("NoSuchFile"));
            assertTrue(refused(Map.of("batonpass.token", "a\nb"), stub.url()).contains("llegal character"));
            assertEquals(0, stub.asked.size());
        }
    }
}
