import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.requests.*;

/**
 * Requests to classic groups as no client sends them, in every state of a group: with groups, members, names, generations,
 * protocols, topics and metadata that are not there or wrong. What is shown of an answer are its errors.
 */
final class ClassicRequests extends Script implements AutoCloseable {
    private static final String GROUP = "classic-requests";
    /** Nobody is put out while the script runs, however long it takes. */

    private final Wire wire;
    private final String topic;
    private Uuid topicId = Uuid.ZERO_UUID;

    ClassicRequests(String bootstrap, String topic) throws IOException {
        super(bootstrap);
        this.wire = new Wire(bootstrap);
        this.topic = topic;
    }

    @Override
    public void close() throws IOException {
        wire.close();
        admin.close();
    }

    /** A group, with a member and its generation where it has one. */
    record Standing(String group, String member, int generation) {
        Standing of(String other) {
            return new Standing(other, member, generation);
        }

        Standing as(String other) {
            return new Standing(group, other, generation);
        }

        Standing in(int other) {
            return new Standing(group, member, other);
        }
    }

    void all() {
        findTopic();
        step("classic requests: coordinator", () -> {
            wire.awaitCoordinator(GROUP);
            return "there";
        });
        joins();
        in("no group", new Standing(GROUP + "-nowhere", "m", 1));
        in("a group without a name", new Standing("", "m", 1));
        inState("Empty", () -> {
            Standing left = stable(GROUP + "-empty");
            leave(5, left, null);
            return left;
        });
        inState("CompletingRebalance", () -> joined(GROUP + "-completing", "consumer"));
        inState("Stable", () -> stable(GROUP + "-stable"));
        try (Wire other = new Wire(bootstrap)) {
            inState("PreparingRebalance", () -> {
                Standing standing = stable(GROUP + "-preparing");
                // Is answered when the first member has joined again, which it never does.
                other.send(ApiKeys.JOIN_GROUP, 3, joining(standing.as(""), "consumer", "range", null));
                await("a rebalance", () -> describe(5, standing.group).contains("PreparingRebalance"));
                return standing;
            });
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    /** A broker that coordinates nobody answers so, whether somebody else does or not. */
    void beforeThereAreCoordinators() {
        findTopic();
        ask("before there are coordinators", new Standing("nobody", "m", 1));
        step("classic requests: a consumer of the new protocol, before there are coordinators", () -> List.of(
            Wire.errors(wire.ask(ApiKeys.CONSUMER_GROUP_HEARTBEAT, 1, new ConsumerGroupHeartbeatRequestData()
                .setGroupId("nobody").setMemberId("m").setMemberEpoch(0).setRebalanceTimeoutMs(LONG_SESSION_MS)
                .setSubscribedTopicNames(List.of(topic)).setTopicPartitions(List.of()))),
            Wire.errors(wire.ask(ApiKeys.CONSUMER_GROUP_DESCRIBE, 1,
                new ConsumerGroupDescribeRequestData().setGroupIds(List.of("nobody"))))));
    }

    private void findTopic() {
        step("classic requests: set-up", () -> {
            topicId = get(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).topicId();
            return "there";
        });
    }

    // ---- groups ----------------------------------------------------------------------------------------------------

    /** A group with one member, which is to say who has what. */
    private Standing joined(String group, String type) throws Exception {
        wire.awaitCoordinator(group);
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (true) {
            // Of this version the member needs no id of its own to be let in.
            JoinGroupResponseData answer = ((JoinGroupResponse) wire.ask(ApiKeys.JOIN_GROUP, 3,
                joining(new Standing(group, "", -1), type, "range", null))).data();
            if (answer.errorCode() == 0) {
                return new Standing(group, answer.memberId(), answer.generationId());
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(Errors.forCode(answer.errorCode()).name());
            }
            Thread.sleep(20);
        }
    }

    /** A group of consumers with one member, which has its assignment. */
    Standing stable(String group) throws Exception {
        Standing standing = joined(group, "consumer");
        SyncGroupRequestData request = syncing(standing, null);
        request.setAssignments(List.of(new SyncGroupRequestData.SyncGroupRequestAssignment()
            .setMemberId(standing.member).setAssignment(new byte[] {0, 0, 0, 0, 0, 0})));
        String errors = Wire.errors(wire.ask(ApiKeys.SYNC_GROUP, 3, request));
        if (!errors.equals("[NONE]")) {
            throw new IllegalStateException(errors);
        }
        return standing;
    }

    // ---- requests --------------------------------------------------------------------------------------------------

    private JoinGroupRequestData joining(Standing who, String type, String protocol, String instance) {
        ByteBuffer subscription = ConsumerProtocol.serializeSubscription(new Subscription(List.of(topic)), (short) 3);
        byte[] metadata = new byte[subscription.remaining()];
        subscription.get(metadata);
        JoinGroupRequestData request = new JoinGroupRequestData().setGroupId(who.group).setMemberId(who.member)
            .setGroupInstanceId(instance).setProtocolType(type).setSessionTimeoutMs(LONG_SESSION_MS).setRebalanceTimeoutMs(LONG_SESSION_MS);
        if (protocol != null) {
            request.protocols().add(new JoinGroupRequestData.JoinGroupRequestProtocol().setName(protocol)
                .setMetadata(metadata));
        }
        return request;
    }

    private String join(int version, Standing who, String type, String protocol, String instance) throws Exception {
        return Wire.errors(wire.ask(ApiKeys.JOIN_GROUP, version, joining(who, type, protocol, instance)));
    }

    private static SyncGroupRequestData syncing(Standing who, String instance) {
        return new SyncGroupRequestData().setGroupId(who.group).setMemberId(who.member).setGenerationId(who.generation)
            .setGroupInstanceId(instance);
    }

    private String sync(int version, Standing who, String type, String protocol, String instance) throws Exception {
        SyncGroupRequestData request = syncing(who, instance);
        if (version >= 5) {
            request.setProtocolType(type).setProtocolName(protocol);
        }
        return Wire.errors(wire.ask(ApiKeys.SYNC_GROUP, version, request));
    }

    private String beat(int version, Standing who, String instance) throws Exception {
        return Wire.errors(wire.ask(ApiKeys.HEARTBEAT, version, new HeartbeatRequestData().setGroupId(who.group)
            .setMemberId(who.member).setGenerationId(who.generation).setGroupInstanceId(instance)));
    }

    private String leave(int version, Standing who, String instance) throws Exception {
        LeaveGroupRequestData request = new LeaveGroupRequestData().setGroupId(who.group);
        if (version < 3) {
            request.setMemberId(who.member);
        } else {
            request.setMembers(List.of(new LeaveGroupRequestData.MemberIdentity().setMemberId(who.member)
                .setGroupInstanceId(instance)));
        }
        return Wire.errors(wire.ask(ApiKeys.LEAVE_GROUP, version, request));
    }

    private String commit(int version, Standing who, String instance, String name, int partition, String metadata)
        throws Exception {
        boolean hasIds = version >= 10;
        Uuid id = name.equals(topic) ? topicId : new Uuid(7, 7);
        return Wire.errors(wire.ask(ApiKeys.OFFSET_COMMIT, version, new OffsetCommitRequestData().setGroupId(who.group)
            .setMemberId(who.member).setGenerationIdOrMemberEpoch(who.generation).setGroupInstanceId(instance)
            .setTopics(List.of(new OffsetCommitRequestData.OffsetCommitRequestTopic().setName(hasIds ? "" : name)
                .setTopicId(hasIds ? id : Uuid.ZERO_UUID).setPartitions(List.of(
                    new OffsetCommitRequestData.OffsetCommitRequestPartition().setPartitionIndex(partition)
                        .setCommittedOffset(3).setCommittedMetadata(metadata)))))));
    }

    private String commit(int version, Standing who, String instance) throws Exception {
        return commit(version, who, instance, topic, 0, "m");
    }

    private String fetch(int version, Standing who, String name, int partition) throws Exception {
        OffsetFetchRequestData request = new OffsetFetchRequestData();
        if (version < 8) {
            request.setGroupId(who.group).setTopics(List.of(new OffsetFetchRequestData.OffsetFetchRequestTopic()
                .setName(name).setPartitionIndexes(List.of(partition))));
        } else {
            boolean hasIds = version >= 10;
            Uuid id = name.equals(topic) ? topicId : new Uuid(7, 7);
            OffsetFetchRequestData.OffsetFetchRequestGroup group = new OffsetFetchRequestData.OffsetFetchRequestGroup()
                .setGroupId(who.group).setTopics(List.of(new OffsetFetchRequestData.OffsetFetchRequestTopics()
                    .setName(hasIds ? "" : name).setTopicId(hasIds ? id : Uuid.ZERO_UUID)
                    .setPartitionIndexes(List.of(partition))));
            if (version >= 9) {
                group.setMemberId(who.member).setMemberEpoch(who.generation);
            }
            request.setGroups(List.of(group));
        }
        return Wire.errors(wire.ask(ApiKeys.OFFSET_FETCH, version, request));
    }

    private String deleteOffset(Standing who, String name, int partition) throws Exception {
        OffsetDeleteRequestData request = new OffsetDeleteRequestData().setGroupId(who.group);
        request.topics().add(new OffsetDeleteRequestData.OffsetDeleteRequestTopic().setName(name).setPartitions(List.of(
            new OffsetDeleteRequestData.OffsetDeleteRequestPartition().setPartitionIndex(partition))));
        return Wire.errors(wire.ask(ApiKeys.OFFSET_DELETE, 0, request));
    }

    private String describe(int version, String... groups) throws Exception {
        DescribeGroupsResponseData answer = ((DescribeGroupsResponse) wire.ask(ApiKeys.DESCRIBE_GROUPS, version,
            new DescribeGroupsRequestData().setGroups(List.of(groups)))).data();
        return answer.groups().stream().map(group -> Errors.forCode(group.errorCode()) + " " + group.errorMessage() + " "
            + group.groupState() + " " + group.protocolType() + " " + group.protocolData() + " "
            + group.members().size()).toList().toString();
    }

    private String delete(int version, String... groups) throws Exception {
        return Wire.errors(wire.ask(ApiKeys.DELETE_GROUPS, version,
            new DeleteGroupsRequestData().setGroupsNames(List.of(groups))));
    }

    // ---- steps -----------------------------------------------------------------------------------------------------

    private void joins() {
        for (int version : new int[] {0, 2, 3, 4, 5, 7, 9}) {
            step("classic requests: join v" + version, () -> {
                Standing nobody = new Standing(GROUP + "-joining", "", -1);
                List<Object> shown = new ArrayList<>();
                shown.add("no type: " + join(version, nobody, "", "range", null));
                shown.add("no protocols: " + join(version, nobody, "consumer", null, null));
                shown.add("unknown member: " + join(version, nobody.as("stranger"), "consumer", "range", null));
                for (int session : new int[] {-1, 0, 1, 5_999, 1_800_001, Integer.MAX_VALUE}) {
                    shown.add("session " + session + ": " + Wire.errors(wire.ask(ApiKeys.JOIN_GROUP, version,
                        joining(nobody, "consumer", "range", null).setSessionTimeoutMs(session))));
                }
                if (version >= 5) {
                    shown.add("unknown member with a name: "
                        + join(version, nobody.as("stranger"), "consumer", "range", "named"));
                }
                if (version == 4) {
                    shown.add("no member: " + join(version, nobody, "consumer", "range", null));
                }
                return shown;
            });
        }
    }

    private interface Making {
        Standing make() throws Exception;
    }

    private void inState(String state, Making making) {
        Standing[] made = new Standing[1];
        step("classic requests: " + state, () -> {
            made[0] = making.make();
            return describe(5, made[0].group);
        });
        if (made[0] != null) {
            in(state, made[0]);
        }
    }

    private void in(String state, Standing own) {
        ask(state, own);
        step("classic requests: described after " + state, () -> describe(5, own.group));
    }

    private void ask(String state, Standing own) {
        Standing stranger = own.as("stranger");
        Standing ahead = own.in(own.generation + 1);
        Standing behind = own.in(own.generation - 1);
        for (int version : new int[] {2, 5, 9}) {
            step("classic requests: " + state + ", join v" + version, () -> {
                List<Object> shown = new ArrayList<>(List.of(
                    "stranger " + join(version, stranger, "consumer", "range", null),
                    "other type " + join(version, stranger, "connect", "range", null),
                    "no type " + join(version, stranger, "", "range", null),
                    "other protocol " + join(version, stranger, "consumer", "mine", null)));
                if (version >= 5) {
                    shown.add("other name " + join(version, own, "consumer", "range", "named"));
                }
                return shown;
            });
        }
        for (int version : new int[] {0, 3, 5}) {
            step("classic requests: " + state + ", sync v" + version, () -> {
                List<Object> shown = new ArrayList<>(List.of(
                    "stranger " + sync(version, stranger, "consumer", "range", null),
                    "ahead " + sync(version, ahead, "consumer", "range", null),
                    "behind " + sync(version, behind, "consumer", "range", null)));
                if (!state.equals("CompletingRebalance")) {
                    shown.add("own " + sync(version, own, "consumer", "range", null));
                }
                if (version >= 3) {
                    shown.add("other name " + sync(version, own, "consumer", "range", "named"));
                }
                if (version >= 5) {
                    shown.add("other type " + sync(version, own, "connect", "range", null));
                    shown.add("other protocol " + sync(version, own, "consumer", "mine", null));
                    shown.add("no protocol " + sync(version, own, null, null, null));
                }
                return shown;
            });
        }
        for (int version : new int[] {0, 3, 4}) {
            step("classic requests: " + state + ", heartbeat v" + version, () -> {
                List<Object> shown = new ArrayList<>(List.of("own " + beat(version, own, null),
                    "stranger " + beat(version, stranger, null), "nobody " + beat(version, own.as(""), null),
                    "ahead " + beat(version, ahead, null), "behind " + beat(version, behind, null)));
                if (version >= 3) {
                    shown.add("other name " + beat(version, own, "named"));
                }
                return shown;
            });
        }
        for (int version : new int[] {0, 3, 5}) {
            step("classic requests: " + state + ", leave v" + version, () -> {
                List<Object> shown = new ArrayList<>(List.of("stranger " + leave(version, stranger, null),
                    "nobody " + leave(version, own.as(""), null)));
                if (version >= 3) {
                    shown.add("other name " + leave(version, own, "named"));
                    shown.add("name alone " + leave(version, own.as(""), "named"));
                    shown.add("no members " + Wire.errors(wire.ask(ApiKeys.LEAVE_GROUP, version,
                        new LeaveGroupRequestData().setGroupId(own.group))));
                }
                return shown;
            });
        }
        for (int version : new int[] {2, 7, 9, 10}) {
            step("classic requests: " + state + ", offset commit v" + version, () -> {
                List<Object> shown = new ArrayList<>(List.of("own " + commit(version, own, null),
                    "stranger " + commit(version, stranger, null), "ahead " + commit(version, ahead, null),
                    "behind " + commit(version, behind, null),
                    "no member, a generation " + commit(version, own.as(""), null),
                    "nobody " + commit(version, own.as("").in(-1), null),
                    "no generation " + commit(version, own.in(-1), null),
                    "metadata " + commit(version, own, null, topic, 0, "m".repeat(5000)),
                    "as much metadata as may be " + commit(version, own, null, topic, 0, "m".repeat(4096)),
                    "no metadata " + commit(version, own, null, topic, 0, null)));
                shown.add("topic " + commit(version, own, null, "classic-nowhere", 0, ""));
                shown.add("partition " + commit(version, own, null, topic, 77, ""));
                shown.add("partition -1 " + commit(version, own, null, topic, -1, ""));
                if (version >= 7) {
                    shown.add("other name " + commit(version, own, "named"));
                }
                return shown;
            });
        }
        for (int version : new int[] {1, 5, 7, 8, 9, 10}) {
            step("classic requests: " + state + ", offset fetch v" + version, () -> List.of(
                "own " + fetch(version, own, topic, 0), "stranger " + fetch(version, stranger, topic, 0),
                "ahead " + fetch(version, ahead, topic, 0), "behind " + fetch(version, behind, topic, 0),
                "topic " + fetch(version, own, "classic-nowhere", 0), "partition " + fetch(version, own, topic, 77)));
        }
        step("classic requests: " + state + ", offset delete", () -> List.of(deleteOffset(own, topic, 0),
            deleteOffset(own, topic, 77), deleteOffset(own, "classic-nowhere", 0)));
        for (int version : new int[] {0, 5, 6}) {
            step("classic requests: " + state + ", describe v" + version, () -> describe(version, own.group));
        }
        step("classic requests: " + state + ", unknown groups deleted", () ->
            List.of(delete(0, own.group + "-nobody"), delete(2, own.group + "-nobody", own.group + "-nobody")));
        if (!state.equals("Empty")) {
            step("classic requests: " + state + ", deleted", () -> List.of(delete(0, own.group), delete(2, own.group)));
        }
    }
}
