package io.batonpass.streams;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.streams.processor.TaskId;

/** A coordinator that says what a test wants it to say. */
final class StubCoordinator implements AutoCloseable {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** What is done with a question. */
    interface Reply {
        void to(Question question) throws Exception;
    }

    /** A question as it came. */
    record Question(String path, String token, JsonNode body, HttpExchange exchange) {
        void answer(int status, byte[] answer) throws IOException {
            exchange.sendResponseHeaders(status, answer.length);
            exchange.getResponseBody().write(answer);
        }
    }

    final BlockingQueue<Question> asked = new LinkedBlockingQueue<>();
    private final CountDownLatch closed = new CountDownLatch(1);
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final HttpServer server;

    StubCoordinator(Reply reply) {
        try {
            server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        server.setExecutor(threads);
        server.createContext("/", exchange -> {
            try (exchange) {
                Question question = new Question(exchange.getRequestURI().getRawPath(),
                    exchange.getRequestHeaders().getFirst("Authorization"), JSON.readTree(exchange.getRequestBody()),
                    exchange);
                asked.add(question);
                reply.to(question);
            } catch (Exception error) {
                // The one who asked has gone, or the test is over.
            }
        });
        server.start();
    }

    /** It answers everything with a status and these bytes. */
    static StubCoordinator saying(int status, byte[] answer) {
        return new StubCoordinator(question -> question.answer(status, answer));
    }

    /** It takes questions and never says a word. */
    static StubCoordinator silent() {
        StubCoordinator[] self = new StubCoordinator[1];
        self[0] = new StubCoordinator(question -> self[0].closed.await());
        return self[0];
    }

    /** A decision as the coordinator would say it. */
    static byte[] answer(Decision decision) {
        ObjectNode answer = JSON.createObjectNode();
        ObjectNode assignment = answer.putObject("assignment");
        decision.tasks().forEach((process, tasks) -> {
            ObjectNode one = assignment.putObject(Snapshot.id(process));
            tasks.active().stream().map(TaskId::toString).forEach(one.putArray("active")::add);
            tasks.copies().stream().map(TaskId::toString).forEach(one.putArray("warmup")::add);
        });
        decision.followup().ifPresentOrElse(
            followup -> answer.put("followup_ms", followup.toMillis()), () -> answer.putNull("followup_ms"));
        answer.put("followup_everyone", decision.everyone());
        return answer.toString().getBytes(java.nio.charset.StandardCharsets.UTF_8);
    }

    String url() {
        return "http://127.0.0.1:" + server.getAddress().getPort();
    }

    Question next() throws InterruptedException {
        Question question = asked.poll(20, TimeUnit.SECONDS);
        if (question == null) {
            throw new AssertionError("nobody asked");
        }
        return question;
    }

    @Override
    public void close() {
        closed.countDown();
        server.stop(0);
        List<Runnable> waiting = threads.shutdownNow();
        assert waiting.isEmpty();
    }
}
