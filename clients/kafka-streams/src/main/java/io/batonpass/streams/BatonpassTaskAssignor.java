package io.batonpass.streams;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.assignment.ApplicationState;
import org.apache.kafka.streams.processor.assignment.TaskAssignor;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A task assignor that asks a Batonpass coordinator where tasks belong: {@code task.assignor.class}.
 *
 * <p>Kafka Streams makes a new one in the group's leader for every rebalance and calls it in a stream thread, whose tasks
 * wait meanwhile. An exception ends that thread, and a task that is left out is not processed. So whatever fails here
 * fails into a decision: {@link KeepOwners}. What has to be remembered from one rebalance to the next is remembered by the
 * coordinator.
 */
public final class BatonpassTaskAssignor implements TaskAssignor {
    static final String VERSION = "0.2.0";

    private static final Logger LOG = LoggerFactory.getLogger(BatonpassTaskAssignor.class);

    /** Those who ask, so that nothing on the way to an answer can hold a stream thread up. Few, and none when idle. */
    private static final ThreadPoolExecutor ASKING = new ThreadPoolExecutor(
        0, 8, 30, TimeUnit.SECONDS, new SynchronousQueue<>(), work -> {
            Thread thread = new Thread(work, "batonpass-asking");
            thread.setDaemon(true);
            return thread;
        });

    private Settings settings = Settings.of(Map.of());
    private Cluster cluster = Cluster.of(Map.of());

    /**
     * Check a configuration before an application is started with it.
     *
     * <p>Kafka Streams itself makes an assignor no earlier than at the first rebalance, and with {@code
     * group.protocol=streams} never: then the broker assigns, no assignor is consulted, and nothing is said.
     *
     * <p>It also asks a coordinator, and waits for up to 5 s for each that does not answer.
     *
     * @throws ConfigException if with this configuration Batonpass would not be asked, or decide otherwise than meant
     */
    public static void check(Map<?, ?> configs) {
        Map<String, Object> named = new HashMap<>();
        configs.forEach((key, value) -> named.put(String.valueOf(key), value));
        Settings settings = Settings.of(named);
        List<String> problems = new ArrayList<>(settings.problems());
        Object assignor = named.get(StreamsConfig.TASK_ASSIGNOR_CLASS_CONFIG);
        String name = assignor instanceof Class<?> type ? type.getName() : String.valueOf(assignor);
        if (!BatonpassTaskAssignor.class.getName().equals(name)) {
            problems.add(StreamsConfig.TASK_ASSIGNOR_CLASS_CONFIG + " is not " + BatonpassTaskAssignor.class.getName());
        }
        Object protocol = named.getOrDefault("group.protocol", "classic");
        if (!"classic".equalsIgnoreCase(String.valueOf(protocol))) {
            problems.add("group.protocol is '" + protocol + "', where the broker assigns and no assignor is consulted;"
                + " leave it out, or set it to classic");
        }
        Object racks = named.getOrDefault(
            StreamsConfig.RACK_AWARE_ASSIGNMENT_STRATEGY_CONFIG, StreamsConfig.RACK_AWARE_ASSIGNMENT_STRATEGY_NONE);
        if (!StreamsConfig.RACK_AWARE_ASSIGNMENT_STRATEGY_NONE.equals(racks)) {
            problems.add(StreamsConfig.RACK_AWARE_ASSIGNMENT_STRATEGY_CONFIG + " is '" + racks + "', which only Kafka's own"
                + " call of its assignor can follow; here it is followed in no mode");
        }
        if (problems.isEmpty() && settings.mode() != Settings.Mode.OFF) {
            CoordinatorCheck.refusal(settings).ifPresent(problems::add);
        }
        if (!problems.isEmpty()) {
            throw new ConfigException(String.join("; ", problems));
        }
    }

    @Override
    public void configure(Map<String, ?> configs) {
        settings = Settings.of(configs);
        cluster = Cluster.of(configs);
    }

    @Override
    public TaskAssignment assign(ApplicationState application) {
        Snapshot snapshot = Snapshot.of(application);
        return decide(snapshot).assignment(snapshot.own(settings.ownNames()));
    }

    private Decision decide(Snapshot snapshot) {
        Counters counters = Counters.of(settings.group());
        counters.rebalance();
        try {
            if (!settings.problems().isEmpty()) {
                String problems = String.join("; ", settings.problems());
                counters.noAnswer(problems);
                LOG.error("Batonpass: nobody is asked, and Kafka's own assignor decides: {}", problems);
                return kafkas(snapshot);
            }
            return switch (settings.mode()) {
                case ASSIGN -> advised(snapshot, counters);
                case SHADOW -> shadowed(snapshot, counters);
                case OFF -> kafkas(snapshot);
            };
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            return kept(snapshot, counters, "the thread was interrupted", null);
        } catch (NoAdvice failure) {
            return kept(snapshot, counters, failure.getMessage(), null);
        } catch (Throwable error) {
            return kept(snapshot, counters, Words.shown(error.toString()), error);
        }
    }

    /** Ask, and wait for as long as the time limit has it. */
    private Decision advised(Snapshot snapshot, Counters counters) throws Throwable {
        long began = System.nanoTime();
        Future<Decision> answer = ASKING.submit(() -> Coordinator.ask(
            settings, AdviceRequest.body(settings, cluster.id(settings.timeout()), snapshot), snapshot));
        try {
            Decision decision = answer.get(settings.timeout().toMillis(), TimeUnit.MILLISECONDS);
            counters.answer(Duration.ofNanos(System.nanoTime() - began));
            LOG.info("Batonpass: {} decided for {}", settings.group(), Words.described(decision, snapshot));
            return decision;
        } catch (TimeoutException late) {
            throw new NoAdvice(settings.silence(settings.timeout()) + " from " + settings.urls());
        } catch (ExecutionException error) {
            throw error.getCause();
        } finally {
            answer.cancel(true);
        }
    }

    /** Decide as Kafka does, and tell the coordinator beside it; nobody waits for what it says. */
    private Decision shadowed(Snapshot snapshot, Counters counters) {
        Decision decision = kafkas(snapshot);
        try {
            ASKING.execute(() -> {
                long began = System.nanoTime();
                try {
                    byte[] question =
                        AdviceRequest.body(settings, cluster.id(settings.timeout()), snapshot, decision);
                    Decision other = Coordinator.ask(settings, question, snapshot);
                    counters.answer(Duration.ofNanos(System.nanoTime() - began));
                    LOG.info("Batonpass: in the shadow of {}, for {}: {}",
                        decision.by(), settings.group(), Words.described(other, snapshot));
                } catch (Throwable error) {
                    unheard(counters, error);
                }
            });
        } catch (Throwable error) {
            unheard(counters, error);
        }
        return decision;
    }

    private void unheard(Counters counters, Throwable error) {
        String why = Words.shown(error instanceof NoAdvice ? error.getMessage() : error.toString());
        counters.noAnswer(why);
        LOG.warn("Batonpass: in the shadow, for {}: no answer: {}", settings.group(), why);
    }

    private static Decision kafkas(Snapshot snapshot) {
        if (KafkaAssignor.looksAtRacks(snapshot)) {
            LOG.warn("Batonpass: {} is not followed, because Kafka's own assignor is not called by Kafka itself. Leave {} out",
                StreamsConfig.RACK_AWARE_ASSIGNMENT_STRATEGY_CONFIG, StreamsConfig.TASK_ASSIGNOR_CLASS_CONFIG);
        }
        return KafkaAssignor.decide(snapshot);
    }

    private Decision kept(Snapshot snapshot, Counters counters, String why, Throwable error) {
        Duration pause = counters.undecided(why, settings.retry());
        LOG.warn("Batonpass: no answer for {}, so owners keep their tasks, and the next question is in {} ms: {}",
            settings.group(), pause.toMillis(), why, error);
        return KeepOwners.decide(snapshot, pause);
    }
}
