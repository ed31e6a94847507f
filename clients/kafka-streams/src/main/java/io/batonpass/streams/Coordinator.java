package io.batonpass.streams;

import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Asks the coordinators over HTTP, one after the other, within one time limit. */
final class Coordinator {
    /** One client for all: its threads are daemons, and a new one for each rebalance would leave threads behind. */
    private static final class Shared {
        static final HttpClient CLIENT = HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .followRedirects(HttpClient.Redirect.NEVER)
            .build();
    }

    private Coordinator() { }

    /**
     * Return what the first coordinator decides that gives a complete answer. Each has an even share of the time left.
     *
     * @throws NoAdvice if none does; it says what each did instead
     */
    static Decision ask(Settings settings, byte[] question, Snapshot snapshot) throws NoAdvice, InterruptedException {
        long endsAt = System.nanoTime() + settings.timeout().toNanos();
        List<String> failures = new ArrayList<>();
        for (int tried = 0; tried < settings.urls().size(); tried++) {
            URI url = settings.urls().get(tried);
            long share = (endsAt - System.nanoTime()) / (settings.urls().size() - tried);
            try {
                return ask(url, settings, question, Duration.ofNanos(share), snapshot);
            } catch (NoAdvice failure) {
                failures.add(url + ": " + failure.getMessage());
            }
        }
        throw new NoAdvice(String.join("; ", failures));
    }

    private static Decision ask(URI url, Settings settings, byte[] question, Duration limit, Snapshot snapshot)
        throws NoAdvice, InterruptedException {
        CompletableFuture<HttpResponse<byte[]>> exchange = null;
        try {
            HttpRequest request = request(url, settings.group(), settings.currentToken(), question);
            exchange = Shared.CLIENT.sendAsync(request, any -> new BoundedBody(settings.maxAnswerBytes()));
            HttpResponse<byte[]> response = exchange.get(Math.max(0, limit.toNanos()), TimeUnit.NANOSECONDS);
            if (response.statusCode() != 200) {
                throw new NoAdvice("it answered " + response.statusCode() + " "
                    + Words.shown(new String(response.body(), StandardCharsets.UTF_8)));
            }
            return Advice.read(response.body(), snapshot);
        } catch (TimeoutException error) {
            throw new NoAdvice("no answer within " + limit.toMillis() + " ms");
        } catch (ExecutionException error) {
            throw new NoAdvice(Words.shown(String.valueOf(error.getCause())));
        } catch (IOException | IllegalArgumentException error) {
            throw new NoAdvice("it cannot be asked: " + Words.shown(error.toString()));
        } finally {
            if (exchange != null) {
                exchange.cancel(true);
            }
        }
    }

    private static HttpRequest request(URI url, String group, Optional<String> token, byte[] question) {
        String path = "/v1/groups/" + URLEncoder.encode(group, StandardCharsets.UTF_8).replace("+", "%20") + "/advice";
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url + path))
            .header("Content-Type", "application/json")
            .header("Accept", "application/json")
            .POST(HttpRequest.BodyPublishers.ofByteArray(question));
        token.ifPresent(word -> request.header("Authorization", "Bearer " + word));
        return request.build();
    }
}
