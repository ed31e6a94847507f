package io.batonpass.streams;

import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;
import javax.management.JMException;
import javax.management.ObjectName;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The counters of one group in this process. They outlive the assignor, of which each rebalance makes a new one. */
final class Counters implements CountersMXBean {
    private static final Logger LOG = LoggerFactory.getLogger(Counters.class);
    private static final Map<String, Counters> KNOWN = new ConcurrentHashMap<>();
    private static final Duration LONGEST_PAUSE = Duration.ofMinutes(1);

    /** A rebalance that was asked for may have to wait for members that are gone: longer than the usual session. */
    private static final Duration REBALANCE = Duration.ofMinutes(1);

    private final LongSupplier nanoTime;
    private final AtomicLong rebalances = new AtomicLong();
    private final AtomicLong answers = new AtomicLong();
    private final AtomicLong noAnswers = new AtomicLong();
    private final AtomicLong slowestMs = new AtomicLong();
    private long inARow;
    private long silentSince;
    private long askedAgainBy;
    private Duration pause = Duration.ZERO;
    private volatile long lastMs;
    private volatile String lastNoAnswer = "";

    Counters(LongSupplier nanoTime) {
        this.nanoTime = nanoTime;
    }

    static Counters of(String group) {
        return KNOWN.computeIfAbsent(group, Counters::registered);
    }

    private static Counters registered(String group) {
        Counters counters = new Counters(System::nanoTime);
        try {
            ObjectName name = new ObjectName("batonpass.streams:type=assignor,group=" + ObjectName.quote(group));
            ManagementFactory.getPlatformMBeanServer().registerMBean(counters, name);
        } catch (JMException | LinkageError | RuntimeException error) {
            // Two class loaders of one process may each have this class; the second counts unseen.
            LOG.warn("Batonpass: the counters of {} cannot be seen over JMX: {}", Words.shown(group), error.toString());
        }
        return counters;
    }

    void rebalance() {
        rebalances.incrementAndGet();
    }

    synchronized void answer(Duration after) {
        long millis = after.toMillis();
        answers.incrementAndGet();
        inARow = 0;
        lastMs = millis;
        slowestMs.accumulateAndGet(millis, Math::max);
    }

    void noAnswer(String why) {
        noAnswers.incrementAndGet();
        lastNoAnswer = why;
    }

    /**
     * Count that the leader had no answer to decide by; return after which pause it asks again.
     *
     * <p>Until somebody answers, rebalances are for nothing: so a pause is as long as nobody has answered, at most twice
     * the one before. A process that is not asked again in time leads no more. What it remembers is over then, because
     * another one may have answers.
     */
    synchronized Duration undecided(String why, Duration least) {
        noAnswer(why);
        long now = nanoTime.getAsLong();
        if (isRowOver(now)) {
            inARow = 0;
        }
        if (inARow == 0) {
            silentSince = now;
            pause = Duration.ZERO;
        }
        inARow++;
        Duration silent = Duration.ofNanos(now - silentSince);
        pause = shorter(LONGEST_PAUSE, longer(least, shorter(silent, pause.multipliedBy(2))));
        askedAgainBy = now + pause.plus(REBALANCE).toNanos();
        return pause;
    }

    private boolean isRowOver(long now) {
        return now - askedAgainBy > 0;
    }

    private static Duration shorter(Duration one, Duration other) {
        return one.compareTo(other) < 0 ? one : other;
    }

    private static Duration longer(Duration one, Duration other) {
        return one.compareTo(other) > 0 ? one : other;
    }

    @Override
    public long getRebalances() {
        return rebalances.get();
    }

    @Override
    public long getAnswers() {
        return answers.get();
    }

    @Override
    public long getNoAnswers() {
        return noAnswers.get();
    }

    @Override
    public synchronized long getNoAnswersInARow() {
        return isRowOver(nanoTime.getAsLong()) ? 0 : inARow;
    }

    @Override
    public String getLastNoAnswer() {
        return lastNoAnswer;
    }

    @Override
    public long getLastAnswerMs() {
        return lastMs;
    }

    @Override
    public long getSlowestAnswerMs() {
        return slowestMs.get();
    }
}
