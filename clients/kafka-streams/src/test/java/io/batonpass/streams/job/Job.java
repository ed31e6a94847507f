package io.batonpass.streams.job;

import io.batonpass.streams.BatonpassTaskAssignor;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Scanner;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.LagInfo;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsException;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StandbyUpdateListener;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * One instance of a job to measure by: a total for each key of the orders, kept as state and written down with each order.
 *
 * <p>It reads {@code APPLICATION-orders} and writes {@code APPLICATION-totals}, exactly once. As many tasks as the topics have partitions, one thread, and outputs stand in the partition of their
 * task. Each says who wrote it and for which input: {@code INSTANCE OFFSET TOTAL COUNT}.
 *
 * <p>What happens goes to standard output, a JSON object a line: {@code state}, {@code has}, {@code restoring}, {@code
 * restored}, {@code opened} and {@code closed} (a task can process from then on, and no longer), {@code failed}, and every second
 * {@code progress}: how many tasks have processed anything since the last one, how
 * many records the worst copy lacks, and how many copies have read so far to be caught up. SIGTERM closes the instance, with {@code --leave yes} out of its group.
 *
 * <pre>
 * java -cp ... io.batonpass.streams.job.Job --instance A --bootstrap HOST:PORT --state-dir FOLDER
 *     [--application totals] [--assignor kafka|batonpass] [--leave yes|no] [--first TOPIC] [--set KEY=VALUE]...
 * </pre>
 *
 * <p>With {@code --first}, a part without state that reads another topic is put first, as a later release might. A line
 * {@code add-thread} on standard input adds a thread.
 */
public final class Job {
    private static final int FILLER_BYTES = 200;

    /** A copy that lacks no more than this is caught up: what it reads then is news. */
    private static final long CAUGHT_UP = 1_000;

    /** Partitions of which anything was processed since this was looked at. */
    private static final Set<Integer> WORKING = ConcurrentHashMap.newKeySet();

    private Job() { }

    /** Run until SIGTERM, or until the instance has failed. */
    public static void main(String[] words) throws InterruptedException {
        Arguments arguments = new Arguments(
            words, List.of("instance", "bootstrap", "state-dir", "application", "assignor", "leave", "first", "set"));
        String instance = arguments.one("instance");
        Properties properties = properties(arguments);
        if (BatonpassTaskAssignor.class.getName().equals(properties.get(StreamsConfig.TASK_ASSIGNOR_CLASS_CONFIG))) {
            BatonpassTaskAssignor.check(properties);
        }
        CountDownLatch over = new CountDownLatch(1);
        KafkaStreams streams = new KafkaStreams(
            topology(instance, properties.getProperty(StreamsConfig.APPLICATION_ID_CONFIG), arguments.one("first", "")),
            properties);
        streams.setStateListener((now, before) -> {
            say("state", "\"now\": \"" + now + "\", \"before\": \"" + before + "\"");
            if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) {
                over.countDown();
            }
        });
        streams.setGlobalStateRestoreListener(new Restores());
        Copies copies = new Copies();
        streams.setStandbyUpdateListener(copies);
        streams.setUncaughtExceptionHandler(error -> {
            say("failed", "\"error\": \"" + String.valueOf(error).replaceAll("[\\p{Cntrl}\"\\\\]", " ") + "\"");
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        boolean leaves = "yes".equals(arguments.one("leave", "no"));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> close(streams, leaves)));
        streams.start();
        Thread listener = new Thread(() -> obey(streams));
        listener.setDaemon(true);
        listener.start();
        String had = "";
        long nextLook = System.nanoTime();
        while (!over.await(100, TimeUnit.MILLISECONDS)) {
            String has = has(streams);
            if (!has.equals(had)) {
                say("has", has);
                had = has;
            }
            if (System.nanoTime() >= nextLook) {
                copies.look(streams);
                nextLook = System.nanoTime() + TimeUnit.SECONDS.toNanos(1);
            }
        }
    }

    private static void obey(KafkaStreams streams) {
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            if ("add-thread".equals(lines.nextLine())) {
                say("threads", "\"added\": \"" + streams.addStreamThread().orElse("none") + "\"");
            }
        }
    }

    /** The class of options that all versions from 3.8 on have is deprecated in the newer ones. */
    @SuppressWarnings({"deprecation", "removal"})
    private static void close(KafkaStreams streams, boolean leaves) {
        streams.close(new KafkaStreams.CloseOptions().timeout(Duration.ofSeconds(30)).leaveGroup(leaves));
    }

    private static Properties properties(Arguments arguments) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments.one("application", "totals"));
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments.one("bootstrap"));
        properties.put(StreamsConfig.CLIENT_ID_CONFIG, arguments.one("instance"));
        properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments.one("state-dir"));
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        properties.put(CommonClientConfigs.METADATA_MAX_AGE_CONFIG, 30_000);
        // What the producer waits for more records would be added to every silence.
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 5);
        switch (arguments.one("assignor", "kafka")) {
            case "kafka" -> { }
            case "batonpass" ->
                properties.put(StreamsConfig.TASK_ASSIGNOR_CLASS_CONFIG, BatonpassTaskAssignor.class.getName());
            default -> throw new IllegalArgumentException("--assignor is kafka or batonpass");
        }
        for (String set : arguments.all("set")) {
            String[] pair = set.split("=", 2);
            if (pair.length < 2) {
                throw new IllegalArgumentException("--set takes KEY=VALUE");
            }
            properties.put(pair[0], pair[1]);
        }
        return properties;
    }

    private static Topology topology(String instance, String application, String first) {
        Topology topology = new Topology();
        if (!first.isEmpty()) {
            topology.addSource("first", new StringDeserializer(), new StringDeserializer(), first);
            topology.addSink("counted", application + "-counted", new StringSerializer(), new StringSerializer(), "first");
        }
        topology.addSource("orders", new StringDeserializer(), new StringDeserializer(), application + "-orders");
        topology.addProcessor("total", () -> new Total(instance), "orders");
        topology.addStateStore(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("store"), Serdes.String(), Serdes.ByteArray())
                .withLoggingEnabled(Map.of())
                .withCachingDisabled(),
            "total");
        topology.addSink("totals", application + "-totals", new StringSerializer(), new StringSerializer(), "total");
        return topology;
    }

    private static final class Total implements Processor<String, String, String, String> {
        private final String instance;
        private ProcessorContext<String, String> context;
        private KeyValueStore<String, byte[]> store;

        Total(String instance) {
            this.instance = instance;
        }

        @Override
        public void init(ProcessorContext<String, String> given) {
            context = given;
            store = given.getStateStore("store");
            say("opened", "\"partition\": " + context.taskId().partition() + ", \"instance\": \"" + instance + "\"");
        }

        @Override
        public void close() {
            say("closed", "\"partition\": " + context.taskId().partition() + ", \"instance\": \"" + instance + "\"");
        }

        @Override
        public void process(Record<String, String> order) {
            byte[] before = store.get(order.key());
            ByteBuffer had = before == null ? ByteBuffer.allocate(Long.BYTES * 2) : ByteBuffer.wrap(before);
            long total = had.getLong() + Long.parseLong(order.value());
            long count = had.getLong() + 1;
            store.put(order.key(),
                ByteBuffer.allocate(Long.BYTES * 2 + FILLER_BYTES).putLong(total).putLong(count).array());
            WORKING.add(context.taskId().partition());
            long offset = context.recordMetadata().orElseThrow().offset();
            context.forward(order.withValue(instance + " " + offset + " " + total + " " + count));
        }
    }

    private static final class Restores implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition changelog, String store, long from, long to) {
            say("restoring", "\"partition\": " + changelog.partition() + ", \"from\": " + from + ", \"to\": " + to);
        }

        @Override
        public void onBatchRestored(TopicPartition changelog, String store, long end, long records) { }

        @Override
        public void onRestoreEnd(TopicPartition changelog, String store, long records) {
            say("restored", "\"partition\": " + changelog.partition() + ", \"records\": " + records);
        }
    }

    /** What standbys and warmups read until they are caught up. */
    private static final class Copies implements StandbyUpdateListener {
        private final Set<Integer> catchingUp = ConcurrentHashMap.newKeySet();
        private final AtomicLong read = new AtomicLong();

        @Override
        public void onUpdateStart(TopicPartition changelog, String store, long from) {
            catchingUp.add(changelog.partition());
        }

        @Override
        public void onBatchLoaded(
            TopicPartition changelog, String store, TaskId task, long last, long records, long end) {
            if (catchingUp.contains(changelog.partition())) {
                read.addAndGet(records);
            }
        }

        @Override
        public void onUpdateSuspended(
            TopicPartition changelog, String store, long offset, long end, SuspendReason reason) {
            catchingUp.remove(changelog.partition());
        }

        void look(KafkaStreams streams) {
            try {
                Map<Integer, LagInfo> lags = streams.allLocalStorePartitionLags().getOrDefault("store", Map.of());
                lags.forEach((partition, lag) -> {
                    if (lag.offsetLag() <= CAUGHT_UP) {
                        catchingUp.remove(partition);
                    }
                });
                long worst = lags.values().stream().mapToLong(LagInfo::offsetLag).max().orElse(0);
                int working = WORKING.size();
                WORKING.clear();
                say("progress", "\"working\": " + working + ", \"behind\": " + worst + ", \"read\": " + read.get());
            } catch (IllegalStateException | StreamsException starting) {
                // It does not run yet, or not any more.
            }
        }
    }

    private static String has(KafkaStreams streams) {
        TreeSet<TaskId> active = new TreeSet<>();
        TreeSet<TaskId> standby = new TreeSet<>();
        for (ThreadMetadata thread : streams.metadataForLocalThreads()) {
            thread.activeTasks().forEach(task -> active.add(task.taskId()));
            thread.standbyTasks().forEach(task -> standby.add(task.taskId()));
        }
        return "\"active\": " + names(active) + ", \"standby\": " + names(standby);
    }

    private static String names(TreeSet<TaskId> tasks) {
        return tasks.stream().map(task -> "\"" + task + "\"").toList().toString();
    }

    static void say(String event, String fields) {
        synchronized (System.out) {
            System.out.println("{\"at\": " + System.currentTimeMillis() + ", \"event\": \"" + event + "\", " + fields + "}");
        }
    }
}
