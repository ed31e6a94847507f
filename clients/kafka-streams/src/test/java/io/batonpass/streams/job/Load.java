package io.batonpass.streams.job;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Utils;

/**
 * The orders of the job: every key once, so that there is state, and then one record for each partition at a steady pace.
 *
 * <p>Topics are made where they are missing. A key belongs to the partition that it hashes to, in orders and totals
 * alike. What happens goes to standard output as with the job: {@code preloaded}, and every second {@code sent}.
 *
 * <pre>
 * java -cp ... io.batonpass.streams.job.Load --bootstrap HOST:PORT
 *     [--application totals] [--partitions 12] [--keys 1000] [--preload yes] [--rate 1200] [--seconds 60]
 * </pre>
 */
public final class Load {
    private final String topic;
    private final KafkaProducer<String, String> producer;
    private final AtomicReference<Exception> failure = new AtomicReference<>();

    private Load(String bootstrap, String topic) {
        this.topic = topic;
        producer = new KafkaProducer<>(
            Map.of(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap, ProducerConfig.LINGER_MS_CONFIG, 2),
            new StringSerializer(), new StringSerializer());
    }

    /** Run for as long as it is told to, or until SIGTERM. */
    public static void main(String[] words) throws Exception {
        Arguments arguments = new Arguments(
            words, List.of("bootstrap", "application", "partitions", "keys", "preload", "rate", "seconds"));
        int partitions = arguments.number("partitions", 12);
        String[][] keys = keys(partitions, arguments.number("keys", 1_000));
        String application = arguments.one("application", "totals");
        makeTopics(arguments.one("bootstrap"), application, partitions);
        Load load = new Load(arguments.one("bootstrap"), application + "-orders");
        if ("yes".equals(arguments.one("preload", "no"))) {
            load.preload(keys);
        }
        load.run(keys, arguments.number("rate", 1_200), arguments.number("seconds", Integer.MAX_VALUE));
        load.producer.close();
    }

    private static void makeTopics(String bootstrap, String application, int partitions) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            // Silence is measured by when the broker wrote an output down.
            NewTopic totals = new NewTopic(application + "-totals", Optional.of(partitions), Optional.empty())
                .configs(Map.of("message.timestamp.type", "LogAppendTime"));
            NewTopic orders = new NewTopic(application + "-orders", Optional.of(partitions), Optional.empty());
            for (NewTopic topic : List.of(orders, totals)) {
                try {
                    admin.createTopics(List.of(topic)).all().get();
                } catch (ExecutionException error) {
                    if (!(error.getCause() instanceof TopicExistsException)) {
                        throw error;
                    }
                }
            }
        }
    }

    /** So many keys for each partition, that hash to it. */
    private static String[][] keys(int partitions, int each) {
        String[][] keys = new String[partitions][each];
        Map<Integer, Integer> filled = new HashMap<>();
        for (int number = 0; filled.values().stream().mapToInt(Integer::intValue).sum() < partitions * each; number++) {
            String key = "k" + number;
            int partition = Utils.toPositive(Utils.murmur2(Utils.utf8(key))) % partitions;
            int at = filled.getOrDefault(partition, 0);
            if (at < each) {
                keys[partition][at] = key;
                filled.put(partition, at + 1);
            }
        }
        return keys;
    }

    private void preload(String[][] keys) throws Exception {
        for (int at = 0; at < keys[0].length; at++) {
            for (int partition = 0; partition < keys.length; partition++) {
                send(partition, keys[partition][at]);
            }
        }
        producer.flush();
        check();
        Job.say("preloaded", "\"records\": " + (long) keys.length * keys[0].length);
    }

    private void run(String[][] keys, int rate, int seconds) throws Exception {
        Random random = new Random(1);
        long began = System.nanoTime();
        long pause = TimeUnit.SECONDS.toNanos(1) * keys.length / rate;
        long rounds = TimeUnit.SECONDS.toNanos(seconds) / pause;
        long worstNs = 0;
        for (long round = 0; round < rounds; round++) {
            long due = began + round * pause;
            long early = due - System.nanoTime();
            if (early > 0) {
                TimeUnit.NANOSECONDS.sleep(early);
            }
            worstNs = Math.max(worstNs, System.nanoTime() - due);
            for (int partition = 0; partition < keys.length; partition++) {
                send(partition, keys[partition][random.nextInt(keys[partition].length)]);
            }
            if ((round + 1) % Math.max(1, rate / keys.length) == 0) {
                check();
                Job.say("sent", "\"records\": " + (round + 1) * keys.length
                    + ", \"late_ms\": " + TimeUnit.NANOSECONDS.toMillis(worstNs));
                worstNs = 0;
            }
        }
    }

    private void send(int partition, String key) {
        producer.send(new ProducerRecord<>(topic, partition, key, "1"), (sent, error) -> {
            if (error != null) {
                failure.compareAndSet(null, error);
            }
        });
    }

    private void check() throws Exception {
        if (failure.get() != null) {
            throw failure.get();
        }
    }
}
