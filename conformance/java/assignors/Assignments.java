// The assignments of Kafka's assignors for random groups: `java -cp JARS:CLASSES Assignments SEED COUNT` writes, for each
// group, the topics with the racks of each partition's replicas, the members with their previous partitions, and the
// assignment of each. The tests of ottla-client read the file and must compute the same.
//
// Members are called m0 to m9: their hash codes have the order of their names, so the maps of Kafka's classes iterate in
// a predictable order.

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public final class Assignments {
    private record Member(
            String id, String instance, String rack, List<String> topics, List<TopicPartition> owned, int generation) {}

    private static final List<String> RACKS = List.of("a", "b", "c");

    public static void main(String[] args) {
        var random = new Random(Long.parseLong(args[0]));
        int count = Integer.parseInt(args[1]);
        var kinds = List.of("range", "range-racks", "roundrobin", "sticky", "cooperative-sticky");
        for (int index = 0; index < count; index++) {
            play(kinds.get(index % kinds.size()), random);
        }
    }

    private static void play(String kind, Random random) {
        boolean withRacks = kind.equals("range-racks");
        boolean isSticky = kind.endsWith("sticky");
        var nodes = IntStream.range(0, 4)
                .mapToObj(id -> new Node(id, "host", 9092, withRacks ? RACKS.get(id % RACKS.size()) : null))
                .toList();
        var partitions = new TreeMap<String, List<PartitionInfo>>();
        for (int topic = 0; topic < 1 + random.nextInt(3); topic++) {
            String name = "t" + topic;
            var infos = new ArrayList<PartitionInfo>();
            int size = random.nextBoolean() ? 4 : 1 + random.nextInt(9);
            for (int number = 0; number < size; number++) {
                var replicas = new ArrayList<>(nodes);
                Collections.shuffle(replicas, random);
                Node[] chosen = replicas.subList(0, 1 + random.nextInt(2)).toArray(Node[]::new);
                infos.add(new PartitionInfo(name, number, chosen[0], chosen, chosen));
            }
            partitions.put(name, infos);
        }
        var members = new ArrayList<Member>();
        var allTopics = List.copyOf(partitions.keySet());
        var free = new ArrayList<TopicPartition>();
        partitions.forEach((topic, infos) -> infos.forEach(it -> free.add(new TopicPartition(topic, it.partition()))));
        Collections.shuffle(free, random);
        for (int number = 0; number < 1 + random.nextInt(7); number++) {
            // The sticky ones break ties by the order of hash maps unless all want the same.
            List<String> topics = isSticky ? allTopics : drawn(allTopics, random);
            String instance = random.nextInt(4) == 0 ? "i" + random.nextInt(100) : null;
            String rack = withRacks && random.nextInt(4) > 0 ? RACKS.get(random.nextInt(3)) : null;
            var owned = new ArrayList<TopicPartition>();
            int generation = -1;
            if (isSticky && random.nextInt(4) > 0) {
                generation = random.nextInt(5) == 0 ? 6 : 7;
                int size = random.nextInt(6);
                while (owned.size() < size && !free.isEmpty()) {
                    owned.add(free.remove(free.size() - 1));
                }
                if (random.nextInt(6) == 0 && !members.isEmpty()) {
                    // Claimed by two.
                    var other = members.get(members.size() - 1).owned();
                    if (!other.isEmpty() && members.stream().filter(it -> it.owned().contains(other.get(0))).count() == 1) {
                        owned.add(other.get(0));
                    }
                }
            }
            members.add(new Member("m" + number, instance, rack, topics, owned, generation));
        }
        write(kind, nodes, partitions, members);
    }

    private static List<String> drawn(List<String> topics, Random random) {
        return topics.stream().filter(it -> random.nextInt(3) > 0).toList();
    }

    private static void write(
            String kind, List<Node> nodes, Map<String, List<PartitionInfo>> partitions, List<Member> members) {
        System.out.println("group " + (kind.equals("range-racks") ? "range" : kind));
        partitions.forEach((topic, infos) -> System.out.println("topic " + topic + " " + infos.stream()
                .map(it -> orDash(List.of(it.replicas()).stream()
                        .map(Node::rack)
                        .filter(rack -> rack != null)
                        .distinct()
                        .sorted()
                        .collect(Collectors.joining(","))))
                .collect(Collectors.joining(" "))));
        var subscriptions = new HashMap<String, Subscription>();
        for (var member : members) {
            System.out.println(String.join(" ", "member", member.id(), orDash(member.instance()), orDash(member.rack()),
                    Integer.toString(member.generation()), orDash(String.join(",", member.topics())),
                    shown(member.owned())));
            subscriptions.put(member.id(), subscription(kind, member));
        }
        var all = partitions.values().stream().flatMap(List::stream).toList();
        var cluster = new Cluster("cluster", nodes, all, Set.of(), Set.of());
        var assigned = assignor(kind).assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
        for (var member : members) {
            var given = new ArrayList<>(assigned.get(member.id()).partitions());
            System.out.println("gets " + member.id() + " " + shown(given));
        }
        System.out.println();
    }

    private static Subscription subscription(String kind, Member member) {
        var assignor = assignor(kind);
        if (member.generation() >= 0) {
            var had = new Assignment(member.owned());
            assignor.onAssignment(had,
                    new ConsumerGroupMetadata("g", member.generation(), member.id(), Optional.empty()));
        }
        ByteBuffer data = assignor.subscriptionUserData(new HashSet<>(member.topics()));
        var subscription = new Subscription(
                member.topics(), data, member.owned(), member.generation(), Optional.ofNullable(member.rack()));
        subscription.setGroupInstanceId(Optional.ofNullable(member.instance()));
        return subscription;
    }

    private static ConsumerPartitionAssignor assignor(String kind) {
        return switch (kind) {
            case "range", "range-racks" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(kind);
        };
    }

    private static String shown(List<TopicPartition> partitions) {
        return orDash(partitions.stream().map(TopicPartition::toString).sorted().collect(Collectors.joining(",")));
    }

    private static String orDash(String text) {
        return text == null || text.isEmpty() ? "-" : text;
    }
}
