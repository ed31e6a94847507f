package io.batonpass.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import org.junit.jupiter.api.Test;

class CountersTest {
    private static final Duration LEAST = Duration.ofSeconds(2);

    private Duration now = Duration.ZERO;
    private final Counters counters = new Counters(() -> now.toNanos());

    private long undecided() {
        return counters.undecided("it is away", LEAST).toSeconds();
    }

    /** The process is asked again when it has asked to be. */
    private long undecidedAgain(long after) {
        now = now.plusSeconds(after);
        return undecided();
    }

    @Test
    void theLongerNobodyAnswersTheLongerItWaits() {
        long pause = undecided();
        for (long expected : new long[] {2, 4, 8, 16, 32, 60, 60}) {
            pause = undecidedAgain(pause);
            assertEquals(expected, pause);
        }
        assertEquals(8, counters.getNoAnswersInARow());
    }

    @Test
    void rebalancesInQuickSuccessionMakeNoPauseLongerThanTheSilence() {
        undecided();
        for (int each = 0; each < 5; each++) {
            assertEquals(2, undecidedAgain(0));
        }
        assertEquals(3, undecidedAgain(3));
    }

    @Test
    void anAnswerEndsIt() {
        undecided();
        counters.answer(Duration.ofMillis(7));
        assertEquals(0, counters.getNoAnswersInARow());
        assertEquals(2, undecidedAgain(30));
        assertEquals(1, counters.getNoAnswersInARow());
    }

    /** Another process leads, and may have answers; this one is told nothing of it. */
    @Test
    void whoIsNotAskedAgainForgetsTheSilence() {
        long pause = undecided();
        for (int each = 0; each < 5; each++) {
            pause = undecidedAgain(pause);
        }
        now = now.plusSeconds(pause + 61);
        assertEquals(0, counters.getNoAnswersInARow());
        assertEquals(6, counters.getNoAnswers());
        assertEquals(2, undecided());
        assertEquals(1, counters.getNoAnswersInARow());
    }

    @Test
    void whoLeadsAgainAfterAWhileWaitsForLittleMoreThanBefore() {
        undecided();
        assertEquals(4, undecidedAgain(20));
    }
}
