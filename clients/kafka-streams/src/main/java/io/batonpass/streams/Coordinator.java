package io.batonpass.streams;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.SocketTimeoutException;
import java.net.URI;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Asks the coordinators over HTTP, one after the other, within one time limit.
 *
 * <p>By {@link HttpURLConnection}, because {@code java.net.http} needs most of that limit to load in a process that asks
 * for the first time. Each question has a connection of its own: they are seldom, and one that was kept may be dead.
 */
final class Coordinator {
    private static final int OK = 200;
    private static final int PART = 1 << 14;

    private Coordinator() { }

    /**
     * Return what the first coordinator decides that gives a complete answer. Each has an even share of the time left.
     *
     * @throws NoAdvice if none does; it says what each did instead
     */
    static Decision ask(Settings settings, byte[] question, Snapshot snapshot) throws NoAdvice {
        long endsAt = System.nanoTime() + settings.timeout().toNanos();
        List<String> failures = new ArrayList<>();
        for (int tried = 0; tried < settings.urls().size(); tried++) {
            URI url = settings.urls().get(tried);
            Duration share = Duration.ofNanos((endsAt - System.nanoTime()) / (settings.urls().size() - tried));
            try {
                return Advice.read(answer(url, settings, question, share), snapshot);
            } catch (NoAdvice failure) {
                failures.add(url + ": " + failure.getMessage());
            }
        }
        throw new NoAdvice(String.join("; ", failures));
    }

    /**
     * Return what one coordinator answers. A thread of its own asks it: name lookups and writes know no limit, the limits
     * of a connection are for each read, and closing one may wait for the JDK to read on in an answer that trickles in.
     */
    private static byte[] answer(URI url, Settings settings, byte[] question, Duration limit) throws NoAdvice {
        int millis = (int) Math.max(1, limit.toMillis());
        String silent = settings.silence(limit);
        CompletableFuture<HttpURLConnection> opened = new CompletableFuture<>();
        FutureTask<byte[]> answer = new FutureTask<>(() -> exchange(url, settings, question, millis, opened));
        Thread thread = new Thread(answer, "batonpass-question");
        thread.setDaemon(true);
        thread.start();
        try {
            return answer.get(millis, TimeUnit.MILLISECONDS);
        } catch (ExecutionException failure) {
            if (failure.getCause() instanceof NoAdvice refused) {
                throw refused;
            }
            if (failure.getCause() instanceof SocketTimeoutException) {
                throw new NoAdvice(silent);
            }
            throw new NoAdvice(Words.shown(failure.getCause().toString()));
        } catch (TimeoutException late) {
            throw new NoAdvice(silent);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            throw new NoAdvice("interrupted before it had answered");
        } finally {
            // Ends a write to a server that does not read. Nobody waits for it: it may take as long as any close.
            opened.thenAcceptAsync(HttpURLConnection::disconnect);
        }
    }

    /** The address of the application's group at a coordinator. */
    static URI group(URI url, Settings settings) {
        return URI.create(
            url + "/v1/groups/" + URLEncoder.encode(settings.group(), StandardCharsets.UTF_8).replace("+", "%20"));
    }

    /** A connection to a coordinator; nothing is sent yet. It follows no redirections: the token is for no other server. */
    static HttpURLConnection connection(URI url, Settings settings, int millis) throws IOException {
        HttpURLConnection connection = (HttpURLConnection) url.toURL().openConnection();
        connection.setConnectTimeout(millis);
        connection.setReadTimeout(millis);
        connection.setInstanceFollowRedirects(false);
        connection.setRequestProperty("Accept", "application/json");
        connection.setRequestProperty("Connection", "close");
        settings.currentToken().ifPresent(word -> connection.setRequestProperty("Authorization", "Bearer " + word));
        return connection;
    }

    private static byte[] exchange(
        URI url, Settings settings, byte[] question, int millis, CompletableFuture<HttpURLConnection> opened)
        throws IOException, NoAdvice {
        long endsAt = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
        HttpURLConnection connection = connection(URI.create(group(url, settings) + "/advice"), settings, millis);
        opened.complete(connection);
        send(connection, question);
        int status = connection.getResponseCode();
        if (status == OK) {
            return read(connection.getInputStream(), connection.getContentLengthLong(), settings, endsAt);
        }
        throw new NoAdvice("it answered " + status + ": " + reason(status, connection, settings, endsAt));
    }

    /** Why there is no answer. The JDK has no body for 401 and for redirections, so that is said in words of our own. */
    private static String reason(int status, HttpURLConnection connection, Settings settings, long endsAt)
        throws IOException, NoAdvice {
        if (status == HttpURLConnection.HTTP_UNAUTHORIZED) {
            return settings.currentToken().isEmpty()
                ? "it requires a token; name a file with one by " + Settings.TOKEN_FILE
                : "the token is unknown, revoked or expired; put another one into " + settings.tokenSetting();
        }
        InputStream body = connection.getErrorStream();
        if (body != null) {
            return Words.problem(read(body, 0, settings, endsAt));
        }
        String elsewhere = connection.getHeaderField("Location");
        return elsewhere == null
            ? Words.shown(String.valueOf(connection.getResponseMessage()))
            : "it refers to " + Words.shown(elsewhere) + ", which is not followed; " + Settings.URL + " has to name it";
    }

    private static void send(HttpURLConnection connection, byte[] question) throws IOException {
        connection.setRequestMethod("POST");
        connection.setRequestProperty("Content-Type", "application/json");
        // Sent as it is, and never a second time by itself.
        connection.setFixedLengthStreamingMode(question.length);
        connection.setDoOutput(true);
        try (OutputStream out = connection.getOutputStream()) {
            out.write(question);
        }
    }

    private static byte[] read(InputStream from, long announced, Settings settings, long endsAt)
        throws IOException, NoAdvice {
        int most = settings.maxAnswerBytes();
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        try (InputStream in = from) {
            byte[] part = new byte[PART];
            for (int length = in.read(part); length >= 0; length = in.read(part)) {
                if (length > most - body.size()) {
                    throw new NoAdvice("the answer is longer than " + most + " bytes (" + Settings.MAX_ANSWER_BYTES + ")");
                }
                if (System.nanoTime() >= endsAt) {
                    throw new SocketTimeoutException("it takes too long");
                }
                body.write(part, 0, length);
            }
        }
        if (announced > body.size()) {
            throw new NoAdvice("the answer ends after " + body.size() + " of " + announced + " bytes");
        }
        return body.toByteArray();
    }
}
