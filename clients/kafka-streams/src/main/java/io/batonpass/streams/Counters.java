package io.batonpass.streams;

import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import javax.management.JMException;
import javax.management.ObjectName;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The counters of one group in this process. They outlive the assignor, of which each rebalance makes a new one. */
final class Counters implements CountersMXBean {
    private static final Logger LOG = LoggerFactory.getLogger(Counters.class);
    private static final Map<String, Counters> KNOWN = new ConcurrentHashMap<>();

    private final AtomicLong rebalances = new AtomicLong();
    private final AtomicLong answers = new AtomicLong();
    private final AtomicLong noAnswers = new AtomicLong();
    private final AtomicLong inARow = new AtomicLong();
    private final AtomicLong slowestMs = new AtomicLong();
    private long silentSince;
    private volatile long lastMs;
    private volatile String lastNoAnswer = "";

    private Counters() { }

    static Counters of(String group) {
        return KNOWN.computeIfAbsent(group, Counters::registered);
    }

    private static Counters registered(String group) {
        Counters counters = new Counters();
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

    void answer(Duration after) {
        long millis = after.toMillis();
        answers.incrementAndGet();
        inARow.set(0);
        lastMs = millis;
        slowestMs.accumulateAndGet(millis, Math::max);
    }

    /** Count that there was no answer; return for how long there has been none. */
    synchronized Duration noAnswer(String why) {
        noAnswers.incrementAndGet();
        lastNoAnswer = why;
        long now = System.nanoTime();
        if (inARow.getAndIncrement() == 0) {
            silentSince = now;
        }
        return Duration.ofNanos(now - silentSince);
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
    public long getNoAnswersInARow() {
        return inARow.get();
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
