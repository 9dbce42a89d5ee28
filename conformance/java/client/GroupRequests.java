import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.function.Consumer;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatRequestData.TopicPartitions;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.requests.*;

/**
 * Requests to consumer groups as no client sends them: for groups, members, names, epochs and partitions that are not
 * there, of the other kind, or wrong. Members have ids that this script gives them, so that errors can be shown with their
 * words.
 */
final class GroupRequests extends Script implements AutoCloseable {
    private static final String GROUP = "java-requests";
    private static final String CLASSIC = "java-requests-classic";
    private static final String OTHER = "java-requests-other";

    private final Wire wire;
    private Uuid topicId;
    /** The last epoch that each member was given. */
    private final Map<String, Integer> epochs = new HashMap<>();

    GroupRequests(String bootstrap) throws IOException {
        super(bootstrap);
        wire = new Wire(bootstrap);
    }

    @Override
    public void close() throws IOException {
        wire.close();
    }

    void all() {
        step("group requests: set-up", () -> {
            topicId = get(admin.describeTopics(List.of(MAIN)).allTopicNames()).get(MAIN).topicId();
            for (String group : List.of(GROUP, CLASSIC, OTHER)) {
                wire.awaitCoordinator(group);
            }
            return List.of(join(1, "m1", request -> { }), join(1, "m2", request -> request.setInstanceId("named")),
                settle("m1"), settle("m2"), classicJoin(CLASSIC, "consumer", "", subscription()),
                classicJoin(OTHER, "connect", "", new byte[] {1}));
        });
        heartbeats();
        members();
        otherProtocol();
        offsets();
        descriptions();
        step("group requests: all leave", () -> List.of(beat(1, "m1", -1, request -> { }),
            beat(1, "m2", -2, request -> request.setInstanceId("named")), beat(1, "m1", -1, request -> { }),
            beat(1, "m2", -1, request -> request.setInstanceId("named")), beat(1, "m1", 3, request -> { })));
    }

    // ---- requests --------------------------------------------------------------------------------------------------

    /** The error and its words, how the epoch has changed, and how many partitions are assigned. */
    private String beat(int version, String member, int epoch, Consumer<ConsumerGroupHeartbeatRequestData> change)
        throws Exception {
        ConsumerGroupHeartbeatRequestData request = new ConsumerGroupHeartbeatRequestData().setGroupId(GROUP)
            .setMemberId(member).setMemberEpoch(epoch);
        change.accept(request);
        ConsumerGroupHeartbeatResponseData answer =
            ((ConsumerGroupHeartbeatResponse) wire.ask(ApiKeys.CONSUMER_GROUP_HEARTBEAT, version, request)).data();
        Errors error = Errors.forCode(answer.errorCode());
        if (error != Errors.NONE) {
            return error + ": " + answer.errorMessage();
        }
        if (answer.memberEpoch() > 0) {
            epochs.put(member, answer.memberEpoch());
        }
        String has = answer.assignment() == null ? "unchanged" : answer.assignment().topicPartitions().stream()
            .mapToInt(topic -> topic.partitions().size()).sum() + " partitions";
        return "epoch " + (answer.memberEpoch() < 0 ? answer.memberEpoch() : "given") + ", " + has + ", every "
            + answer.heartbeatIntervalMs() + (request.memberId().equals(answer.memberId()) ? "" : ", new id");
    }

    private String join(int version, String member, Consumer<ConsumerGroupHeartbeatRequestData> change) throws Exception {
        return beat(version, member, 0, request -> {
            request.setRebalanceTimeoutMs(30_000).setSubscribedTopicNames(List.of(MAIN)).setTopicPartitions(List.of());
            change.accept(request);
        });
    }

    /** Has all members say what they have until nothing changes any more and each has something. */
    private String settle(String last) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        int calm = 0;
        for (int round = 0; round < 6 || calm < 3; round++) {
            boolean isChanged = false;
            for (String member : epochs.keySet()) {
                if (!member.startsWith("m")) {
                    continue;
                }
                Consumer<ConsumerGroupHeartbeatRequestData> named =
                    request -> request.setInstanceId(member.equals("m2") ? "named" : null);
                ConsumerGroupHeartbeatRequestData request = new ConsumerGroupHeartbeatRequestData().setGroupId(GROUP)
                    .setMemberId(member).setMemberEpoch(epochs.get(member)).setTopicPartitions(owned.getOrDefault(member,
                        List.of()));
                named.accept(request);
                ConsumerGroupHeartbeatResponseData answer = ((ConsumerGroupHeartbeatResponse)
                    wire.ask(ApiKeys.CONSUMER_GROUP_HEARTBEAT, 1, request)).data();
                if (answer.errorCode() != 0) {
                    return Errors.forCode(answer.errorCode()) + ": " + answer.errorMessage();
                }
                isChanged |= epochs.put(member, answer.memberEpoch()) != answer.memberEpoch();
                if (answer.assignment() != null) {
                    List<TopicPartitions> assigned = answer.assignment().topicPartitions().stream().map(topic ->
                        new TopicPartitions().setTopicId(topic.topicId()).setPartitions(topic.partitions())).toList();
                    isChanged |= !assigned.equals(owned.put(member, assigned));
                }
            }
            boolean isSpread = owned.keySet().stream().allMatch(member -> sizeOf(member) > 0)
                && owned.keySet().stream().mapToInt(this::sizeOf).sum() == 3;
            calm = isChanged || !isSpread ? 0 : calm + 1;
            if (System.nanoTime() > deadline) {
                giveUp("a settled group: " + owned);
            }
            // A group is assigned anew once in a while.
            Thread.sleep(200);
        }
        return last + " has " + sizeOf(last);
    }

    private int sizeOf(String member) {
        return owned.get(member).stream().mapToInt(topic -> topic.partitions().size()).sum();
    }

    /** What each member was told to have. */
    private final Map<String, List<TopicPartitions>> owned = new TreeMap<>();

    private byte[] subscription() {
        ByteBuffer buffer = ConsumerProtocol.serializeSubscription(new Subscription(List.of(MAIN)), (short) 3);
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private String classicJoin(String group, String type, String member, byte[] metadata) throws Exception {
        JoinGroupRequestData request = new JoinGroupRequestData().setGroupId(group).setMemberId(member)
            .setProtocolType(type).setSessionTimeoutMs(LONG_SESSION_MS)
            .setRebalanceTimeoutMs(LONG_SESSION_MS)
            .setProtocols(new JoinGroupRequestData.JoinGroupRequestProtocolCollection(List.of(
                new JoinGroupRequestData.JoinGroupRequestProtocol().setName("range").setMetadata(metadata)).iterator()));
        // Of this version the member needs no id of its own to be let in.
        return Wire.errors(wire.ask(ApiKeys.JOIN_GROUP, 3, request));
    }

    // ---- steps -----------------------------------------------------------------------------------------------------

    private void wrong(String what, Consumer<ConsumerGroupHeartbeatRequestData> change) {
        for (int version : new int[] {0, 1}) {
            // Whoever is let in by mistake is in a group of its own.
            step("group requests: " + what + ", v" + version, () -> join(version, "stranger", request -> {
                request.setGroupId(GROUP + "-strangers");
                change.accept(request);
            }));
        }
    }

    private void heartbeats() {
        wrong("no group", request -> request.setGroupId(""));
        wrong("a blank group", request -> request.setGroupId(" \t"));
        wrong("no member", request -> request.setMemberId(""));
        wrong("no member and an epoch", request -> request.setMemberId("").setMemberEpoch(3));
        wrong("no member leaves", request -> request.setMemberId("").setMemberEpoch(-1));
        wrong("epoch -3", request -> request.setMemberEpoch(-3));
        wrong("an empty name", request -> request.setInstanceId(""));
        wrong("leaves for a while without a name", request -> request.setMemberEpoch(-2));
        wrong("an empty rack", request -> request.setRackId(""));
        wrong("no rebalance timeout", request -> request.setRebalanceTimeoutMs(-1));
        wrong("owned partitions are not said", request -> request.setTopicPartitions(null));
        wrong("joins with partitions", request -> request.setTopicPartitions(owns(0)));
        wrong("no subscription", request -> request.setSubscribedTopicNames(null));
        wrong("an unknown topic", request -> request.setSubscribedTopicNames(List.of("java-nowhere")));
        wrong("no topics", request -> request.setSubscribedTopicNames(List.of()));
        wrong("an assignor that is not there", request -> request.setServerAssignor("mine"));
        wrong("an empty assignor", request -> request.setServerAssignor(""));
        wrong("an epoch in a group that is not there",
            request -> request.setGroupId(GROUP + "-nowhere").setMemberEpoch(7));
        wrong("leaves a group that is not there", request -> request.setGroupId(GROUP + "-nowhere").setMemberEpoch(-1));
        wrong("a member that is not there", request -> request.setMemberId("nobody").setMemberEpoch(7));
        wrong("a member that is not there leaves", request -> request.setMemberId("nobody").setMemberEpoch(-1));
        step("group requests: an empty expression, v1", () -> join(1, "stranger", request ->
            request.setGroupId(GROUP + "-strangers").setSubscribedTopicNames(null).setSubscribedTopicRegex("")));
        for (String pattern : List.of("(", ")", "[a", "*", "a{2", "a{2,1}", "a{1001}", "\\8", "(?<n", "(?P<n>a)(?P<n>b)",
            "[b-a]", "\\pX", "[[:none:]]", "a**", "(?i", "\\")) {
            step("group requests: the expression " + pattern, () -> join(1, "stranger", request -> request
                .setGroupId(GROUP + "-strangers").setSubscribedTopicNames(List.of()).setSubscribedTopicRegex(pattern)));
        }
    }

    private List<TopicPartitions> owns(int... partitions) {
        return List.of(new TopicPartitions().setTopicId(topicId)
            .setPartitions(Arrays.stream(partitions).boxed().toList()));
    }

    private void members() {
        step("group requests: epoch ahead", () -> beat(1, "m1", epochs.get("m1") + 1, request -> { }));
        step("group requests: epoch behind", () -> beat(1, "m1", epochs.get("m1") - 1, request -> { }));
        step("group requests: epoch far behind with partitions", () ->
            beat(1, "m1", 1, request -> request.setTopicPartitions(owns(0, 1, 2))));
        step("group requests: partitions of somebody else", () ->
            beat(1, "m1", epochs.get("m1"), request -> request.setTopicPartitions(owned.get("m2"))));
        step("group requests: partitions that are not there", () ->
            beat(1, "m1", epochs.get("m1"), request -> request.setTopicPartitions(owns(77, -1))));
        step("group requests: topics that are not there", () ->
            beat(1, "m1", epochs.get("m1"), request -> request.setTopicPartitions(List.of(
                new TopicPartitions().setTopicId(new Uuid(7, 7)).setPartitions(List.of(0))))));
        step("group requests: the name is taken", () -> join(1, "m3", request -> request.setInstanceId("named")));
        step("group requests: the name is another's", () ->
            beat(1, "m1", epochs.get("m1"), request -> request.setInstanceId("named")));
        step("group requests: the name is nobody's", () ->
            beat(1, "m1", epochs.get("m1"), request -> request.setInstanceId("nobody")));
        step("group requests: another leaves under the name", () ->
            beat(1, "m1", -2, request -> request.setInstanceId("named")));
        step("group requests: nobody leaves under a name", () ->
            beat(1, "m1", -2, request -> request.setInstanceId("nobody")));
        step("group requests: without its name", () -> beat(1, "m2", epochs.get("m2"), request -> { }));
        step("group requests: joins again", () -> join(1, "m1", request -> { }));
        step("group requests: after all that", () -> List.of(settle("m1"), settle("m2")));
    }

    /** The classic protocol on the group of the new one, and the other way round. */
    private void otherProtocol() {
        step("group requests: joins a group that is none of consumers", () ->
            join(1, "stranger", request -> request.setGroupId(OTHER)));
        step("group requests: an epoch in a group that is none of consumers", () ->
            beat(1, "stranger", 4, request -> request.setGroupId(OTHER)));
        step("group requests: an epoch in a classic group", () ->
            beat(1, "stranger", 4, request -> request.setGroupId(CLASSIC)));
        step("group requests: leaves a classic group", () ->
            beat(1, "stranger", -1, request -> request.setGroupId(CLASSIC)));
        step("group requests: classic, other type", () -> classicJoin(GROUP, "connect", "", new byte[] {1}));
        step("group requests: classic, what is no subscription", () -> classicJoin(GROUP, "consumer", "", new byte[] {1}));
        step("group requests: classic, unknown member", () -> classicJoin(GROUP, "consumer", "nobody", subscription()));
        step("group requests: classic, by a member", () -> classicJoin(GROUP, "consumer", "m1", subscription()));
        step("group requests: classic sync", () -> {
            List<String> shown = new ArrayList<>();
            for (String member : List.of("m1", "nobody")) {
                shown.add(Wire.errors(wire.ask(ApiKeys.SYNC_GROUP, 5, new SyncGroupRequestData().setGroupId(GROUP)
                    .setMemberId(member).setGenerationId(epochs.get("m1")).setProtocolType("consumer")
                    .setProtocolName("range"))));
            }
            return shown;
        });
        step("group requests: classic heartbeat", () -> {
            List<String> shown = new ArrayList<>();
            for (String member : List.of("m1", "m2", "nobody")) {
                shown.add(Wire.errors(wire.ask(ApiKeys.HEARTBEAT, 4, new HeartbeatRequestData().setGroupId(GROUP)
                    .setMemberId(member).setGenerationId(epochs.get("m1")))));
            }
            return shown;
        });
        step("group requests: classic leave", () -> {
            List<Object> shown = new ArrayList<>();
            for (String[] who : new String[][] {{"m1", null}, {"nobody", null}, {"", "nobody"}, {"m1", "named"}}) {
                LeaveGroupResponseData answer = ((LeaveGroupResponse) wire.ask(ApiKeys.LEAVE_GROUP, 5,
                    new LeaveGroupRequestData().setGroupId(GROUP).setMembers(List.of(new LeaveGroupRequestData
                        .MemberIdentity().setMemberId(who[0]).setGroupInstanceId(who[1]))))).data();
                shown.add(Errors.forCode(answer.errorCode()) + " " + answer.members().stream()
                    .map(member -> member.memberId() + " " + Errors.forCode(member.errorCode())).toList());
            }
            return shown;
        });
        step("group requests: after that", () -> {
            join(1, "m1", request -> { });
            return List.of(settle("m1"), settle("m2"));
        });
    }

    private String commit(int version, String member, int epoch, String instance) throws Exception {
        OffsetCommitRequestData request = new OffsetCommitRequestData().setGroupId(GROUP).setMemberId(member)
            .setGenerationIdOrMemberEpoch(epoch).setGroupInstanceId(instance).setTopics(List.of(
                new OffsetCommitRequestData.OffsetCommitRequestTopic().setName(version < 10 ? MAIN : "")
                    .setTopicId(version < 10 ? Uuid.ZERO_UUID : topicId).setPartitions(List.of(
                        new OffsetCommitRequestData.OffsetCommitRequestPartition().setPartitionIndex(0)
                            .setCommittedOffset(3).setCommittedMetadata("m")))));
        return Wire.errors(wire.ask(ApiKeys.OFFSET_COMMIT, version, request));
    }

    private String fetch(int version, String group, String member, int epoch) throws Exception {
        OffsetFetchRequestData request = new OffsetFetchRequestData().setGroups(List.of(
            new OffsetFetchRequestData.OffsetFetchRequestGroup().setGroupId(group).setMemberId(member)
                .setMemberEpoch(epoch).setTopics(List.of(new OffsetFetchRequestData.OffsetFetchRequestTopics()
                    .setName(version < 10 ? MAIN : "").setTopicId(version < 10 ? Uuid.ZERO_UUID : topicId)
                    .setPartitionIndexes(List.of(0))))));
        return Wire.errors(wire.ask(ApiKeys.OFFSET_FETCH, version, request));
    }

    private void offsets() {
        for (int version : new int[] {8, 9, 10}) {
            step("group requests: offset commit v" + version, () -> {
                int epoch = epochs.get("m1");
                return List.of(commit(version, "m1", epoch, null), commit(version, "m1", epoch + 1, null),
                    commit(version, "m1", epoch - 1, null), commit(version, "m1", -1, null),
                    commit(version, "nobody", epoch, null), commit(version, "", -1, null), commit(version, "", epoch, null),
                    commit(version, "m1", epoch, "named"));
            });
            step("group requests: offset fetch v" + version, () -> {
                int epoch = epochs.get("m1");
                return List.of(fetch(version, GROUP, "m1", epoch), fetch(version, GROUP, "m1", epoch + 1),
                    fetch(version, GROUP, "m1", epoch - 1), fetch(version, GROUP, "nobody", epoch),
                    fetch(version, GROUP, "nobody", -1), fetch(version, GROUP, "", epoch), fetch(version, GROUP, null, -1),
                    fetch(version, GROUP + "-nowhere", "m1", epoch), fetch(version, GROUP + "-nowhere", null, -1));
            });
        }
        step("group requests: offset delete", () -> Wire.errors(wire.ask(ApiKeys.OFFSET_DELETE, 0,
            new OffsetDeleteRequestData().setGroupId(GROUP).setTopics(new OffsetDeleteRequestData
                .OffsetDeleteRequestTopicCollection(List.of(new OffsetDeleteRequestData.OffsetDeleteRequestTopic()
                    .setName(MAIN).setPartitions(List.of(new OffsetDeleteRequestData.OffsetDeleteRequestPartition()
                        .setPartitionIndex(0)))).iterator())))));
        step("group requests: group delete", () -> Wire.errors(wire.ask(ApiKeys.DELETE_GROUPS, 2,
            new DeleteGroupsRequestData().setGroupsNames(List.of(GROUP, GROUP + "-nowhere", "")))));
    }

    private void descriptions() {
        step("group requests: described", () -> {
            ConsumerGroupDescribeResponseData answer = ((ConsumerGroupDescribeResponse) wire.ask(
                ApiKeys.CONSUMER_GROUP_DESCRIBE, 1, new ConsumerGroupDescribeRequestData().setGroupIds(
                    List.of(GROUP, CLASSIC, OTHER, GROUP + "-nowhere", "", GROUP)))).data();
            // Groups on several partitions of the offsets topic may come in another order.
            return answer.groups().stream().map(group -> group.groupId() + " " + Errors.forCode(group.errorCode()) + " "
                + group.errorMessage() + " " + group.groupState() + " " + group.assignorName() + " "
                + group.authorizedOperations() + " " + group.members().stream().map(member -> member.memberId() + " "
                + member.instanceId() + " " + member.rackId() + " " + member.clientId() + " " + member.clientHost() + " "
                + member.subscribedTopicNames() + " " + member.subscribedTopicRegex() + " " + member.memberType() + " "
                + (member.memberEpoch() == group.groupEpoch()) + " " + member.assignment().equals(member.targetAssignment()))
                .sorted().toList()).sorted().toList();
        });
        step("group requests: described by the classic request", () -> {
            DescribeGroupsResponseData answer = ((DescribeGroupsResponse) wire.ask(ApiKeys.DESCRIBE_GROUPS, 6,
                new DescribeGroupsRequestData().setGroups(List.of(GROUP, GROUP + "-nowhere", "")))).data();
            return answer.groups().stream().map(group -> group.groupId() + " " + Errors.forCode(group.errorCode()) + " "
                + group.errorMessage() + " " + group.groupState() + " " + group.protocolType()).sorted().toList();
        });
    }
}
