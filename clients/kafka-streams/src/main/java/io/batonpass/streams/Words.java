package io.batonpass.streams;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** Words for a line of the log. */
final class Words {
    private static final int MOST = 200;
    private static final int MOST_OF_A_REASON = 600;

    private Words() { }

    /** What came from outside, without control characters, and without what is beyond its first 200 characters. */
    static String shown(String text) {
        return shown(text, MOST);
    }

    private static String shown(String text, int most) {
        String begin = text.length() > most ? text.substring(0, most) + "…" : text;
        return begin.replaceAll("\\p{Cntrl}", "?");
    }

    /** What a coordinator says of a refusal: its detail (RFC 9457), or all of it, if it is anything else. */
    static String problem(byte[] body) {
        try {
            if (Json.read(body) instanceof Map<?, ?> problem && problem.get("detail") instanceof String detail) {
                return shown(detail, MOST_OF_A_REASON);
            }
        } catch (IOException anythingElse) {
            // Shown as it is.
        }
        return shown(new String(body, StandardCharsets.UTF_8));
    }

    /** How much each process has, and when to look again. */
    static String described(Decision decision, Snapshot snapshot) {
        StringBuilder words = new StringBuilder();
        decision.tasks().forEach((process, tasks) -> words.append(snapshot.name(process).orElse(Snapshot.id(process))).append(": ")
            .append(tasks.active().size()).append(" active, ").append(tasks.copies().size()).append(" copies; "));
        return words + decision.followup().map(followup -> "another rebalance in " + followup.toMillis() + " ms"
            + (decision.everyone() ? ", for every process" : "")).orElse("at rest");
    }
}
