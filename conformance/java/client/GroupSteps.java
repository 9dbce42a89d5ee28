import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

/** Groups: members that join and leave, and what an administrator does with their offsets. */
final class GroupSteps extends Script {
    GroupSteps(String bootstrap) {
        super(bootstrap);
    }

    void rebalances() {
        for (String assignor : List.of("RangeAssignor", "RoundRobinAssignor", "StickyAssignor",
            "CooperativeStickyAssignor")) {
            String group = "java-" + assignor;
            Map<String, String> settings = Map.of("group.id", group, "auto.offset.reset", "earliest",
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor,
                "heartbeat.interval.ms", "200", "session.timeout.ms", String.valueOf(LONG_SESSION_MS),
                "enable.auto.commit", "false");
            Member[] members = new Member[3];
            step("group " + assignor + ": first member", () -> {
                members[0] = new Member(settings, MAIN);
                return sizes(group, members, 3);
            });
            step("group " + assignor + ": second member", () -> {
                members[1] = new Member(settings, MAIN);
                return sizes(group, members, 3);
            });
            step("group " + assignor + ": a member with a name of its own", () -> {
                Map<String, String> named = new HashMap<>(settings);
                named.put("group.instance.id", "java-static");
                members[2] = new Member(named, MAIN);
                return sizes(group, members, 3);
            });
            step("group " + assignor + ": described", () -> groupShown(group));
            step("group " + assignor + ": first member leaves", () -> {
                members[0].close();
                members[0] = null;
                return sizes(group, members, 3);
            });
            step("group " + assignor + ": all leave", () -> {
                // The named member does not leave when it closes; the rebalance that the other one's leaving starts waits
                // for it until its session ends.
                members[2].close();
                members[1].close();
                Object shown = groupShown(group);
                // Its session would end while later steps list the groups.
                get(admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions(
                    Set.of(new MemberToRemove("java-static")))).all());
                await("the end of " + group, () -> stateOf(group) == GroupState.EMPTY);
                return shown;
            });
        }
    }

    private GroupState stateOf(String group) {
        return get(admin.describeConsumerGroups(List.of(group)).all()).get(group).groupState();
    }

    /**
     * The numbers of partitions per member, once all partitions are given out and no two members hold the same, and the
     * broker has heard of it.
     */
    private Object sizes(String group, Member[] members, int partitions) throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        List<Integer> sizes = List.of();
        int calm = 0;
        while (System.nanoTime() < deadline) {
            List<Member> present = Arrays.stream(members).filter(Objects::nonNull).toList();
            List<Integer> now = present.stream().map(member -> member.assigned.size()).sorted().toList();
            long different = present.stream().flatMap(member -> member.assigned.stream()).distinct().count();
            boolean isSpread = now.stream().mapToInt(n -> n).sum() == partitions && different == partitions
                && now.get(0) >= partitions / present.size() && stateOf(group) == GroupState.STABLE;
            calm = isSpread && now.equals(sizes) ? calm + 1 : 0;
            sizes = now;
            if (calm >= 3) {
                return sizes;
            }
            Thread.sleep(100);
        }
        giveUp("a settled group: " + sizes + " " + groupShown(group));
        return sizes;
    }

    private Object groupShown(String group) {
        ConsumerGroupDescription found = get(admin.describeConsumerGroups(List.of(group),
            new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).all()).get(group);
        List<String> members = found.members().stream().map(member -> member.clientId() + " "
            + member.groupInstanceId().orElse("-") + " " + member.host() + " "
            // Which member holds more than another is chance.
            + (found.groupState() == GroupState.STABLE ? member.assignment().topicPartitions().size() : "-"))
            .sorted().toList();
        return Map.of("state", found.groupState(), "assignor", found.partitionAssignor(), "type", found.type(),
            "simple", found.isSimpleConsumerGroup(), "coordinator", found.coordinator().id(), "members", members,
            "operations", sorted(found.authorizedOperations()));
    }

    /** Groups of the consumer protocol, and a group that goes from one protocol to the other and back while it has members. */
    void consumerProtocol() {
        String group = "java-kip848";
        Map<String, String> settings = Map.of("group.id", group, "auto.offset.reset", "earliest",
            "group.protocol", "consumer", "enable.auto.commit", "false");
        Member[] members = new Member[3];
        step("consumer protocol: first member", () -> {
            members[0] = new Member(settings, MAIN);
            return sizes(group, members, 3);
        });
        step("consumer protocol: second member and one with a name", () -> {
            members[1] = new Member(settings, MAIN);
            Map<String, String> named = new HashMap<>(settings);
            named.put("group.instance.id", "java-kip848-static");
            members[2] = new Member(named, MAIN);
            return sizes(group, members, 3);
        });
        step("consumer protocol: described", () -> groupShown(group));
        step("consumer protocol: commit and fetch", () -> {
            TopicPartition partition = new TopicPartition(MAIN, 0);
            List<Object> shown = new ArrayList<>();
            shown.add(outcome(() -> get(admin.alterConsumerGroupOffsets(group,
                Map.of(partition, new OffsetAndMetadata(0))).all())));
            shown.add(outcome(() -> get(admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all())));
            shown.add(outcome(() -> get(admin.deleteConsumerGroups(List.of(group)).all())));
            return shown;
        });
        step("consumer protocol: a name that is taken", () -> {
            Map<String, String> named = new HashMap<>(settings);
            named.put("group.instance.id", "java-kip848-static");
            Member twin = new Member(named, MAIN);
            return failureOf(twin);
        });
        step("consumer protocol: first member leaves", () -> {
            members[0].close();
            members[0] = null;
            return sizes(group, members, 3);
        });
        step("consumer protocol: an assignor that is not served", () -> {
            Map<String, String> other = new HashMap<>(settings);
            other.put("group.id", "java-kip848-assignor");
            other.put("group.remote.assignor", "mine");
            return failureOf(new Member(other, MAIN));
        });
        step("consumer protocol: all leave", () -> {
            // The place of the member with a name is kept for a while. It goes first: a heartbeat that it sends when the other
            // one has left, or does not send any more, decides whether partitions are assigned anew.
            members[2].close();
            members[1].close();
            ConsumerGroupDescription found = get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
            return List.of(found.groupState(), found.members().stream()
                .map(member -> member.groupInstanceId().orElse("-")).toList());
        });
        step("consumer protocol: by a pattern", () -> {
            Map<String, String> other = new HashMap<>(settings);
            other.put("group.id", "java-kip848-pattern");
            try (Consumer<byte[], byte[]> consumer = consumer(other)) {
                consumer.subscribe(new SubscriptionPattern("java-ma[h-j]n"));
                first(consumer);
                return consumer.assignment().stream().map(TopicPartition::toString).sorted().toList();
            }
        });
        for (String pattern : List.of("(", "a**", "[[:foo:]]", "a{1001}", "(?x)a")) {
            step("consumer protocol: by no pattern " + pattern, () -> {
                Map<String, String> other = new HashMap<>(settings);
                other.put("group.id", "java-kip848-pattern");
                try (Consumer<byte[], byte[]> consumer = consumer(other)) {
                    consumer.subscribe(new SubscriptionPattern(pattern));
                    return recordShown(first(consumer));
                }
            });
        }
        migrates();
    }

    private void migrates() {
        String group = "java-migrating";
        Map<String, String> classic = Map.of("group.id", group, "auto.offset.reset", "earliest",
            "heartbeat.interval.ms", "200", "enable.auto.commit", "false");
        Map<String, String> upgraded = Map.of("group.id", group, "auto.offset.reset", "earliest",
            "group.protocol", "consumer", "enable.auto.commit", "false");
        Member[] members = new Member[3];
        step("migration: classic members", () -> {
            members[0] = new Member(classic, MAIN);
            members[1] = new Member(classic, MAIN);
            return List.of(sizes(group, members, 3), groupShown(group));
        });
        step("migration: a member of the consumer protocol joins", () -> {
            members[2] = new Member(upgraded, MAIN);
            return List.of(sizes(group, members, 3), groupShown(group));
        });
        step("migration: it leaves again", () -> {
            members[2].close();
            members[2] = null;
            return List.of(sizes(group, members, 3), groupShown(group));
        });
        step("migration: all classic members are replaced", () -> {
            members[2] = new Member(upgraded, MAIN);
            sizes(group, members, 3);
            members[0].close();
            members[0] = null;
            sizes(group, members, 3);
            members[1].close();
            members[1] = null;
            return List.of(sizes(group, members, 3), groupShown(group));
        });
        step("migration: the last leaves", () -> {
            members[2].close();
            return groupShown(group);
        });
    }

    /** What a member stopped with. */
    private Object failureOf(Member member) throws InterruptedException {
        member.thread.join(PATIENCE.toMillis());
        String fate = String.valueOf(member.failure);
        member.close();
        return fate;
    }

    void administration() {
        String group = "java-committing";
        TopicPartition p0 = new TopicPartition(MAIN, 0);
        TopicPartition p1 = new TopicPartition(MAIN, 1);
        Map<String, String> settings = Map.of("group.id", group, "auto.offset.reset", "earliest",
            "enable.auto.commit", "false", "heartbeat.interval.ms", "200");
        step("commit", () -> {
            try (Consumer<byte[], byte[]> consumer = consumer(settings)) {
                consumer.subscribe(List.of(MAIN));
                first(consumer);
                consumer.commitSync(Map.of(p0, new OffsetAndMetadata(7, Optional.of(0), "seven"),
                    p1, new OffsetAndMetadata(3)));
                return texts(consumer.committed(Set.of(p0, p1, new TopicPartition(MAIN, 2))));
            }
        });
        step("commit with too much metadata", () -> {
            try (Consumer<byte[], byte[]> consumer = consumer(settings)) {
                consumer.assign(List.of(p0));
                consumer.commitSync(Map.of(p0, new OffsetAndMetadata(8, "x".repeat(5000))));
                return "committed";
            }
        });
        step("commit to an unknown topic", () -> {
            try (Consumer<byte[], byte[]> consumer = consumer(settings)) {
                TopicPartition unknown = new TopicPartition("java-nobody-commits", 0);
                consumer.commitSync(Map.of(unknown, new OffsetAndMetadata(8)), Duration.ofSeconds(1));
                return "committed";
            }
        });
        step("resume at the commit", () -> {
            try (Consumer<byte[], byte[]> consumer = consumer(settings)) {
                consumer.assign(List.of(p0));
                return recordShown(first(consumer));
            }
        });
        step("list committed offsets", () ->
            texts(get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata())));
        step("alter committed offsets", () -> {
            get(admin.alterConsumerGroupOffsets(group, Map.of(p0, new OffsetAndMetadata(2),
                p1, new OffsetAndMetadata(1, "one"))).all());
            return texts(get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()));
        });
        step("alter and delete in a group with members", () -> {
            Member member = new Member(settings, MAIN);
            Object sizes = sizes(group, new Member[] {member}, 3);
            List<Object> shown = new ArrayList<>(List.of(sizes));
            shown.add(outcome(() -> get(admin.alterConsumerGroupOffsets(group,
                Map.of(p0, new OffsetAndMetadata(0))).all())));
            shown.add(outcome(() -> get(admin.deleteConsumerGroupOffsets(group, Set.of(p0)).all())));
            shown.add(outcome(() -> get(admin.deleteConsumerGroups(List.of(group)).all())));
            member.close();
            return shown;
        });
        step("delete committed offsets", () -> {
            get(admin.deleteConsumerGroupOffsets(group, Set.of(p0)).all());
            return texts(get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()));
        });
        step("delete offsets of an unknown group", () ->
            get(admin.deleteConsumerGroupOffsets("java-nobody", Set.of(p0)).all()));
        step("list groups", () -> get(admin.listGroups().all()).stream()
            .filter(found -> found.groupId().startsWith("java"))
            .map(found -> found.groupId() + " " + found.protocol() + " " + found.type().orElse(null) + " "
                + found.groupState().orElse(null) + " " + found.isSimpleConsumerGroup()).sorted().toList());
        step("list groups by state", () -> get(admin.listGroups(new ListGroupsOptions()
            .inGroupStates(Set.of(GroupState.STABLE)).withTypes(Set.of(GroupType.CLASSIC))).all()).stream()
            .filter(found -> found.groupId().startsWith("java")).count());
        step("describe unknown group", () -> groupShown("java-nobody"));
        step("static member removed", () -> {
            Map<String, String> named = new HashMap<>(settings);
            named.put("group.id", "java-removing");
            named.put("group.instance.id", "java-removed");
            Member member = new Member(named, MAIN);
            Object sizes = sizes("java-removing", new Member[] {member}, 3);
            // A static member that closes stays in its group until it is removed or its session ends.
            member.close();
            Object before = groupShown("java-removing");
            get(admin.removeMembersFromConsumerGroup("java-removing", new RemoveMembersFromConsumerGroupOptions(
                Set.of(new MemberToRemove("java-removed")))).all());
            return List.of(sizes, before, groupShown("java-removing"));
        });
        step("static member replaced", () -> {
            Map<String, String> named = new HashMap<>(settings);
            named.put("group.id", "java-fencing");
            named.put("group.instance.id", "java-twin");
            Member first = new Member(named, MAIN);
            sizes("java-fencing", new Member[] {first}, 3);
            Member second = new Member(named, MAIN);
            Object sizes = sizes("java-fencing", new Member[] {second}, 3);
            first.thread.join(PATIENCE.toMillis());
            String fate = String.valueOf(first.failure);
            first.close();
            second.close();
            return List.of(sizes, fate);
        });
        step("delete groups", () -> {
            get(admin.deleteConsumerGroups(List.of(group, "java-RangeAssignor")).all());
            return get(admin.listGroups().all()).stream().map(GroupListing::groupId)
                .filter(id -> id.equals(group) || id.equals("java-RangeAssignor")).toList();
        });
        step("delete unknown group", () -> get(admin.deleteConsumerGroups(List.of("java-nobody")).all()));
        step("delete group with a bad id", () -> get(admin.deleteConsumerGroups(List.of("")).all()));
    }
}
