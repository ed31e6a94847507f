package io.batonpass.streams;

/**
 * What came of asking, for one application in this process: {@code batonpass.streams:type=assignor,group="…"}.
 *
 * <p>Only the leader of the group asks, so the figures of all processes belong together.
 */
public interface CountersMXBean {
    /** Rebalances that this process decided about as the leader. */
    long getRebalances();

    /** Complete answers of a coordinator. */
    long getAnswers();

    /** Times that a coordinator was asked, or should have been, and gave no complete answer. */
    long getNoAnswers();

    /**
     * How often this process, as the leader, had to decide without an answer since the last one; while it is not 0,
     * newcomers get no tasks. It is 0 again when the process has not been asked for a while: then it leads no more.
     */
    long getNoAnswersInARow();

    /** Why there was no answer the last time, in words; empty where that never was. */
    String getLastNoAnswer();

    /** How long the last answer took, in milliseconds. */
    long getLastAnswerMs();

    /** How long the slowest answer took, in milliseconds. */
    long getSlowestAnswerMs();
}
