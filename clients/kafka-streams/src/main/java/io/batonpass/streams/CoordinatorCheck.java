package io.batonpass.streams;

import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What a coordinator says of this application before it starts: it reads the application's group, and changes nothing. */
final class CoordinatorCheck {
    private static final Logger LOG = LoggerFactory.getLogger(CoordinatorCheck.class);
    private static final int LIMIT_MS = 5_000;
    private static final int MOST = 16 << 20;
    private static final int OK = 200;
    private static final int BAD_REQUEST = 400;
    private static final int UNAUTHENTICATED = 401;
    private static final int NOT_FOUND = 404;
    private static final int TOO_MANY = 429;
    private static final int SERVER_ERROR = 500;

    private CoordinatorCheck() { }

    /**
     * Return why the first coordinator that answers would refuse this application's questions; none if it would not.
     *
     * <p>One that does not answer refuses nothing: an application starts without its coordinator.
     */
    static Optional<String> refusal(Settings settings) {
        for (URI url : settings.urls()) {
            try {
                return answer(url, settings);
            } catch (IOException | ClassCastException failure) {
                LOG.warn("Batonpass: {} could not be asked whether it takes the group {}: {}",
                    url, settings.group(), Words.shown(failure.toString()));
            }
        }
        return Optional.empty();
    }

    private static Optional<String> answer(URI url, Settings settings) throws IOException {
        HttpURLConnection connection = Coordinator.connection(Coordinator.group(url, settings), settings, LIMIT_MS);
        try {
            int status = connection.getResponseCode();
            InputStream body = status < BAD_REQUEST ? connection.getInputStream() : connection.getErrorStream();
            byte[] said = body == null ? new byte[0] : body.readNBytes(MOST);
            String words = new String(said, StandardCharsets.UTF_8);
            if (status == OK) {
                return ofGroup(url, settings, (Map<?, ?>) Json.read(said));
            }
            // A token in a file may still be replaced while the application runs.
            boolean mayChange = status == UNAUTHENTICATED && settings.tokenFile().isPresent();
            if (mayChange || status == TOO_MANY || status >= SERVER_ERROR) {
                throw new IOException("it answered " + status + ": " + Words.problem(said));
            }
            if (status == NOT_FOUND && words.contains("unknown-group")) {
                return Optional.empty();
            }
            return Optional.of(url + " would refuse the group '" + settings.group() + "': it answered " + status + ": "
                + Words.problem(said));
        } finally {
            connection.disconnect();
        }
    }

    private static Optional<String> ofGroup(URI url, Settings settings, Map<?, ?> group) {
        Map<?, ?> config = group.get("config") instanceof Map<?, ?> known ? known : Map.of();
        String whose = String.valueOf(config.get("application_id"));
        boolean another = config.containsKey("application_id") && !whose.isEmpty() && !settings.applicationId().isEmpty()
            && !whose.equals(settings.applicationId());
        if (another || Boolean.FALSE.equals(config.get("kafka_streams"))) {
            return Optional.of(Settings.GROUP + " (or else application.id) is '" + settings.group() + "', which at " + url
                + " is " + (another ? "the group of the application '" + Words.shown(whose) + "'; name another, or, if this"
                + " one has taken its place, delete the group" : "a group of members that heartbeat; name another"));
        }
        return Optional.empty();
    }
}
