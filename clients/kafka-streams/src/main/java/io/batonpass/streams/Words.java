package io.batonpass.streams;

/** Words for a line of the log. */
final class Words {
    private static final int MOST = 200;

    private Words() { }

    /** What came from outside, without control characters, and without what is beyond its first 200 characters. */
    static String shown(String text) {
        String begin = text.length() > MOST ? text.substring(0, MOST) + "…" : text;
        return begin.replaceAll("\\p{Cntrl}", "?");
    }

    /** How much each process has, and when to look again. */
    static String described(Decision decision) {
        StringBuilder words = new StringBuilder();
        decision.tasks().forEach((process, tasks) -> words.append(Snapshot.name(process)).append(": ")
            .append(tasks.active().size()).append(" active, ").append(tasks.copies().size()).append(" copies; "));
        return words + decision.followup().map(followup -> "another rebalance in " + followup.toMillis() + " ms"
            + (decision.everyone() ? ", for every process" : "")).orElse("at rest");
    }
}
