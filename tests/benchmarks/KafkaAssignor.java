import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.internals.assignment.ClientState;
import org.apache.kafka.streams.processor.internals.assignment.HighAvailabilityTaskAssignor;
import org.apache.kafka.streams.processor.internals.assignment.RackAwareTaskAssignor;

/**
 * Times Kafka's own assignor on the groups of the benchmark: first placement, re-run, join and leave, in turns.
 *
 * <p>Arguments: tasks, members, standbys, capacity, subtopologies, zones, and for how many seconds. A line of standard
 * output is a call: which operation, and the milliseconds of processor time of its thread. Only {@code assign} is
 * timed, neither what leads to its arguments nor what compiles it.
 */
public final class KafkaAssignor {
  private static final long LAG_OF_NOTHING = 1_000_000L;
  private static final long RUNS = -2L;
  private static final int CALLS_AT_LEAST = 3;
  private static final int CALLS_AT_MOST = 40;

  private record Held(Set<TaskId> actives, Set<TaskId> standbys) {}

  private final Set<TaskId> tasks = new TreeSet<>();
  private final int capacity;
  private final int zones;
  private final AssignmentConfigs configs;

  private KafkaAssignor(int tasks, int standbys, int capacity, int subtopologies, int zones) {
    this.capacity = capacity;
    this.zones = zones;
    for (int number = 0; number < tasks; number++) {
      this.tasks.add(new TaskId(number % subtopologies, number / subtopologies));
    }
    configs =
        new AssignmentConfigs(
            10_000L, 2, standbys, 600_000L, List.of("zone"), OptionalInt.empty(), OptionalInt.empty(), "none");
  }

  private Map<ProcessId, ClientState> clientsOf(Map<Integer, Held> held) {
    Map<ProcessId, ClientState> clients = new TreeMap<>();
    held.forEach(
        (member, has) -> {
          Map<TaskId, Long> lags = new HashMap<>();
          for (TaskId task : tasks) {
            boolean standby = has.standbys.contains(task);
            lags.put(task, has.actives.contains(task) ? RUNS : standby ? 0L : LAG_OF_NOTHING);
          }
          Map<String, String> tags = Map.of("zone", "zone-" + member % zones);
          ProcessId id = new ProcessId(new UUID(0, member));
          clients.put(id, new ClientState(has.actives, has.standbys, lags, tags, capacity, id));
        });
    return clients;
  }

  private double assign(Map<ProcessId, ClientState> clients) {
    var racks =
        new RackAwareTaskAssignor(
            Cluster.empty(), Map.of(), Map.of(), Map.of(), Map.of(), null, configs, Time.SYSTEM);
    var threads = ManagementFactory.getThreadMXBean();
    System.gc();
    long began = threads.getCurrentThreadCpuTime();
    new HighAvailabilityTaskAssignor().assign(clients, tasks, tasks, racks, configs);
    return (threads.getCurrentThreadCpuTime() - began) / 1e6;
  }

  private Map<String, Map<Integer, Held>> operations(int members) {
    Map<Integer, Held> empty = new TreeMap<>();
    for (int member = 0; member < members; member++) {
      empty.put(member, new Held(Set.of(), Set.of()));
    }
    Map<ProcessId, ClientState> placed = clientsOf(empty);
    System.out.println("first " + assign(placed));
    Map<Integer, Held> rest = new TreeMap<>();
    List<ClientState> states = new ArrayList<>(placed.values());
    for (int member = 0; member < members; member++) {
      ClientState state = states.get(member);
      rest.put(member, new Held(new HashSet<>(state.activeTasks()), new HashSet<>(state.standbyTasks())));
    }
    Map<Integer, Held> joined = new TreeMap<>(rest);
    joined.put(members, new Held(Set.of(), Set.of()));
    Map<Integer, Held> left = new TreeMap<>(rest);
    left.remove(members / 2);
    Map<String, Map<Integer, Held>> operations = new LinkedHashMap<>();
    operations.put("re-run", rest);
    operations.put("join", joined);
    operations.put("leave", left);
    operations.put("first", empty);
    return operations;
  }

  public static void main(String[] args) {
    int[] numbers = java.util.Arrays.stream(args).mapToInt(Integer::parseInt).toArray();
    var assignor = new KafkaAssignor(numbers[0], numbers[2], numbers[3], numbers[4], numbers[5]);
    long end = System.nanoTime() + numbers[6] * 1_000_000_000L;
    var operations = assignor.operations(numbers[1]);
    for (int call = 0; call < CALLS_AT_MOST && (call < CALLS_AT_LEAST || System.nanoTime() < end); call++) {
      operations.forEach(
          (name, held) -> System.out.println(name + " " + assignor.assign(assignor.clientsOf(held))));
    }
  }
}
