package io.batonpass.streams;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;

/**
 * What the application was configured with, read without ever throwing: a bad value is a problem in words.
 *
 * @param problems what is wrong; while there is any, nobody is asked and Kafka's own assignor decides
 */
record Settings(
    Mode mode,
    List<URI> urls,
    Optional<String> token,
    Optional<Path> tokenFile,
    String applicationId,
    String group,
    Duration timeout,
    Duration retry,
    int maxAnswerBytes,
    List<String> ownNames,
    List<String> problems
) {
    static final String URL = "batonpass.url";
    static final String TOKEN = "batonpass.token";
    static final String TOKEN_FILE = "batonpass.token.file";
    static final String GROUP = "batonpass.group";
    static final String MODE = "batonpass.mode";
    static final String TIMEOUT_MS = "batonpass.timeout.ms";
    static final String RETRY_MS = "batonpass.retry.ms";
    static final String MAX_ANSWER_BYTES = "batonpass.max.answer.bytes";

    private static final String APPLICATION_ID = "application.id";
    private static final String OURS = "batonpass.";
    private static final Set<String> KNOWN =
        Set.of(URL, TOKEN, TOKEN_FILE, GROUP, MODE, TIMEOUT_MS, RETRY_MS, MAX_ANSWER_BYTES);

    /** In the shadow nobody waits for an answer, and one that is lost is missing from what the trial shows. */
    private static final Duration SHADOW_TIMEOUT = Duration.ofSeconds(10);
    private static final int MAX_GROUP = 255;

    /** What the coordinator takes for a name: it knows more blanks than Java, and . and .. end no path. Half a pair is no text. */
    private static final Pattern NAME = Pattern.compile(
        "(?!\\.{1,2}\\z)[^\\s\\x1c-\\x1f/\\p{Cntrl}\\x7f-\\x9f\ufffd\\p{Cs}]+", Pattern.UNICODE_CHARACTER_CLASS);

    /** Who decides. */
    enum Mode {
        /** The coordinator. */
        ASSIGN,
        /** Kafka's own assignor; the coordinator is told, and says what it would have done. */
        SHADOW,
        /** Kafka's own assignor, and nobody is asked. */
        OFF
    }

    static Settings of(Map<String, ?> configs) {
        Reader reader = new Reader(configs);
        reader.names();
        Mode mode = reader.mode();
        List<URI> urls = reader.urls(mode);
        Duration timeout = Duration.ofMillis(reader.number(TIMEOUT_MS, 2_000, 50, 10_000));
        return new Settings(
            mode,
            urls,
            reader.text(TOKEN),
            reader.text(TOKEN_FILE).flatMap(reader::path),
            reader.text(APPLICATION_ID).orElse(""),
            reader.group(mode),
            mode == Mode.SHADOW ? SHADOW_TIMEOUT : timeout,
            Duration.ofMillis(reader.number(RETRY_MS, 2_000, 500, 60_000)),
            (int) reader.number(MAX_ANSWER_BYTES, 16 << 20, 1 << 10, 1 << 30),
            reader.ownNames(),
            List.copyOf(reader.problems)
        );
    }

    /** The token as it is now: a file is read anew each time, so that it can be replaced while the application runs. */
    Optional<String> currentToken() throws IOException {
        if (tokenFile.isEmpty()) {
            return token;
        }
        return Optional.of(Files.readString(tokenFile.get()).strip());
    }

    /** The setting that the token comes from. */
    String tokenSetting() {
        return tokenFile.isEmpty() ? TOKEN : "the file of " + TOKEN_FILE;
    }

    /** That nobody has answered in this time, with the setting to change if that is not enough. */
    String silence(Duration waited) {
        String silence = "no answer within " + waited.toMillis() + " ms";
        return mode == Mode.SHADOW ? silence : silence + " (" + TIMEOUT_MS + "=" + timeout.toMillis() + ")";
    }

    /** Not the record's own words: these would show the token. */
    @Override
    public String toString() {
        return "mode " + mode + ", group " + group + ", coordinators " + urls;
    }

    /** Reads values of any type, and notes what is wrong with them. */
    private static final class Reader {
        private final Map<String, ?> configs;
        private final List<String> problems = new ArrayList<>();

        Reader(Map<String, ?> configs) {
            this.configs = configs;
        }

        Optional<String> text(String key) {
            return Optional.ofNullable(configs.get(key)).map(value -> value.toString().strip())
                .filter(value -> !value.isEmpty());
        }

        /** A misspelled name would mean its default, and that of the mode is to assign. */
        void names() {
            configs.keySet().stream().filter(name -> name.startsWith(OURS) && !KNOWN.contains(name)).sorted()
                .forEach(name -> problems.add(Words.shown(name) + " is no setting; there are "
                    + String.join(", ", new TreeSet<>(KNOWN))));
        }

        Mode mode() {
            String name = text(MODE).orElse("assign");
            for (Mode mode : Mode.values()) {
                if (mode.name().toLowerCase(Locale.ROOT).equals(name)) {
                    return mode;
                }
            }
            problems.add(MODE + " is '" + name + "'; it may be assign, shadow or off");
            return Mode.OFF;
        }

        List<URI> urls(Mode mode) {
            List<URI> urls = new ArrayList<>();
            for (String part : text(URL).orElse("").split(",")) {
                if (!part.isBlank()) {
                    url(part.strip()).ifPresent(urls::add);
                }
            }
            if (urls.isEmpty() && problems.isEmpty() && mode != Mode.OFF) {
                problems.add(URL + " names no coordinator; it is like http://coordinator:8420, several with commas");
            }
            return List.copyOf(urls);
        }

        private Optional<URI> url(String text) {
            try {
                URI url = URI.create(text.replaceAll("/+$", ""));
                boolean plain = url.getHost() != null && url.getQuery() == null && url.getFragment() == null
                    && url.getUserInfo() == null;
                if (plain && ("http".equals(url.getScheme()) || "https".equals(url.getScheme()))) {
                    return Optional.of(url);
                }
            } catch (IllegalArgumentException error) {
                // Said below.
            }
            String shown = Words.shown(text.replaceAll("//[^/]*@", "//…@"));
            problems.add(URL + " has '" + shown + "', which is no address like http://coordinator:8420");
            return Optional.empty();
        }

        Optional<Path> path(String text) {
            try {
                return Optional.of(Path.of(text));
            } catch (IllegalArgumentException error) {
                problems.add(TOKEN_FILE + " is no path: " + error.getMessage());
                return Optional.empty();
            }
        }

        String group(Mode mode) {
            String group = text(GROUP).or(() -> text(APPLICATION_ID)).orElse("");
            boolean wrong = group.codePointCount(0, group.length()) > MAX_GROUP || !NAME.matcher(group).matches();
            if (wrong && mode != Mode.OFF) {
                problems.add(GROUP + " (or else application.id) is '" + Words.shown(group)
                    + "'; it may have 1 to 255 characters, without slash, blank or control characters, and not be . or ..");
            }
            return group;
        }

        long number(String key, long otherwise, long least, long most) {
            Optional<String> text = text(key);
            if (text.isEmpty()) {
                return otherwise;
            }
            try {
                long number = Long.parseLong(text.get());
                if (number >= least && number <= most) {
                    return number;
                }
            } catch (NumberFormatException error) {
                // Said below.
            }
            problems.add(key + " is '" + text.get() + "'; it may be from " + least + " to " + most);
            return otherwise;
        }

        /** How the member ids of this process begin: with the consumer's client id, or a static member's instance id. */
        List<String> ownNames() {
            List<String> names = new ArrayList<>();
            text("client.id").ifPresent(names::add);
            text("group.instance.id").ifPresent(names::add);
            return List.copyOf(names);
        }
    }
}
