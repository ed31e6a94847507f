package io.batonpass.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.SortedMap;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.state.HostInfo;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class AdviceRequestTest {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Settings ASSIGN = Settings.of(Map.of("application.id", "app"));
    private static final Settings SHADOW = Settings.of(Map.of("application.id", "app", "batonpass.mode", "shadow"));
    private static final Optional<String> CLUSTER = Optional.of("c-1");

    private static Applications application() {
        Applications application = new Applications().stateful("0_0", "0_1", "0_2").stateless("1_0")
            .standbys(1).rackTags("zone");
        application.member(1).threads(2).tag("zone", "a").running("0_0").restoring("0_1", 812).copy("0_2", 10);
        application.member(2).copy("0_0", Applications.UNKNOWN).actives.addAll(Applications.ids("1_0"));
        // What the application had before it was changed.
        application.member(2).copies.addAll(Applications.ids("2_0"));
        application.member(2).actives.addAll(Applications.ids("2_1"));
        return application;
    }

    @Test
    void theSnapshotIsWhatTheLeaderKnows() throws IOException {
        ObjectNode asked = (ObjectNode) JSON.readTree(
            AdviceRequest.body(ASSIGN, CLUSTER, application().snapshot()));
        assertTrue(asked.remove("streams_version").textValue().matches("\\d+\\.\\d+\\.\\d+"));
        assertEquals(System.getProperty("plugin.version"), asked.remove("plugin_version").textValue());
        JsonNode expected = JSON.readTree("""
            {"mode": "assign", "application_id": "app", "cluster_id": "c-1",
             "config": {"acceptable_recovery_lag": 10000, "max_warmup_replicas": 2, "num_standby_replicas": 1,
                        "rack_aware_tags": ["zone"]},
             "tasks": [
               {"id": "0_0", "stateful": true, "changelog_topics": ["app-store-changelog"], "source_topics": ["orders"]},
               {"id": "0_1", "stateful": true, "changelog_topics": ["app-store-changelog"], "source_topics": ["orders"]},
               {"id": "0_2", "stateful": true, "changelog_topics": ["app-store-changelog"], "source_topics": ["orders"]},
               {"id": "1_0", "stateful": false, "changelog_topics": [], "source_topics": ["orders"]}],
             "members": [
               {"id": "00000000-0000-0000-0000-000000000001", "capacity": 2, "client_tags": {"zone": "a"},
                "tasks": {"0_0": {"role": "active", "state": "running"},
                          "0_1": {"role": "active", "state": "restoring", "lag": 812},
                          "0_2": {"role": "none", "lag": 10}}},
               {"id": "00000000-0000-0000-0000-000000000002", "capacity": 1, "client_tags": {},
                "tasks": {"1_0": {"role": "active", "state": "running"}, "0_0": {"role": "none"}}}]}
            """);
        assertEquals(expected, asked);
    }

    @ParameterizedTest
    @CsvSource({
        "orders-a-StreamThread-1-consumer-6f9619ff-8b86-d011-b42d-00cf4fc964ff, orders-a",
        "orders-a-StreamThread-12-consumer, orders-a",
        "pod-0-1-6f9619ff-8b86-d011-b42d-00cf4fc964ff, pod-0",
        "app-00000000-0000-0000-0000-000000000001-StreamThread-1-consumer-6f9619ff-8b86-d011-b42d-00cf4fc964ff, ",
        "something-else, "})
    void aProcessHasTheNameThatItsOperatorsGaveIt(String consumer, String name) throws IOException {
        Applications application = new Applications().stateful("0_0");
        application.member(1).consumer = consumer;
        application.member(1).host = Optional.of(new HostInfo("10.0.0.7", 9000));
        JsonNode member = JSON.readTree(AdviceRequest.body(ASSIGN, CLUSTER, application.snapshot()))
            .get("members").get(0);
        assertEquals(name, member.has("name") ? member.get("name").textValue() : null);
        assertEquals("10.0.0.7:9000", member.get("endpoint").textValue());
    }

    @Test
    void inTheShadowWhatKafkaDecidedIsToldToo() throws IOException {
        Snapshot snapshot = application().snapshot();
        SortedMap<ProcessId, Decision.Tasks> tasks = Decision.nothingYet(snapshot.processes().keySet());
        tasks.get(Applications.process(1)).active().addAll(Applications.ids("0_0", "0_1", "1_0"));
        tasks.get(Applications.process(2)).active().addAll(Applications.ids("0_2"));
        tasks.get(Applications.process(2)).copies().addAll(Applications.ids("0_0"));
        Decision other = new Decision("Some", tasks, Optional.of(Duration.ofMinutes(10)), false);
        JsonNode asked = JSON.readTree(AdviceRequest.body(SHADOW, Optional.empty(), snapshot, other));
        assertEquals("shadow", asked.get("mode").textValue());
        assertEquals(false, asked.has("cluster_id"));
        JsonNode expected = JSON.readTree("""
            {"assignor": "Some", "followup_ms": 600000, "assignment": {
              "00000000-0000-0000-0000-000000000001": {"active": ["0_0", "0_1", "1_0"], "standby": []},
              "00000000-0000-0000-0000-000000000002": {"active": ["0_2"], "standby": ["0_0"]}}}
            """);
        assertEquals(expected, asked.get("other"));

        Decision resting = new Decision("Some", tasks, Optional.empty(), false);
        JsonNode last = JSON.readTree(AdviceRequest.body(SHADOW, Optional.empty(), snapshot, resting));
        assertEquals(false, last.get("other").has("followup_ms"));
    }

    @Test
    void aStoreWithoutChangelogIsNoState() throws IOException {
        Applications application = new Applications().stateless("0_0");
        application.member(1);
        JsonNode asked = JSON.readTree(AdviceRequest.body(ASSIGN, CLUSTER, application.snapshot()));
        assertEquals(false, asked.get("tasks").get(0).get("stateful").booleanValue());
    }

    @Test
    void theOwnProcessIsFoundByTheNamesOfItsMembers() {
        Applications application = new Applications();
        application.member(1).consumer("a-StreamThread-1-consumer-7d6f");
        application.member(2).consumer("b-StreamThread-1-consumer-1c1c");
        application.member(3).consumer("pod-2-1-9a9a");
        Snapshot snapshot = application.snapshot();
        assertEquals(Optional.of(Applications.process(2)), snapshot.own(List.of("b-StreamThread-1-consumer")));
        assertEquals(Optional.of(Applications.process(3)), snapshot.own(List.of("c", "pod-2-1")));
        assertEquals(Optional.of(Applications.process(1)), snapshot.own(List.of("b-StreamThread-1-cons")));
        assertEquals(Optional.of(Applications.process(1)), snapshot.own(List.of()));
        assertEquals(Optional.empty(), new Applications().snapshot().own(List.of("a")));
    }
}
