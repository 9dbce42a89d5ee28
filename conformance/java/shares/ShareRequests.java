import java.io.IOException;
import java.util.*;
import java.util.function.Consumer;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.requests.*;

/**
 * Requests to share groups, to the leaders of their partitions and to share coordinators as no client sends them: for
 * groups, members, topics, partitions and epochs that are not there or wrong, and acknowledgements of what nobody has.
 */
final class ShareRequests extends Script implements AutoCloseable {
    private static final String TOPIC = "shares-requests";
    private static final String GROUP = "shares-requests";
    private static final String NOWHERE = "shares-never";
    private static final Uuid NO_TOPIC = new Uuid(7, 7);
    private static final byte ACCEPT = 1;
    private static final byte RENEW = 4;

    private final Wire wire;
    private Uuid topicId;
    private int memberEpoch;

    ShareRequests(String bootstrap) throws IOException {
        super(bootstrap);
        wire = new Wire(bootstrap);
    }

    @Override
    public void close() throws IOException {
        wire.close();
        admin.close();
    }

    void all() {
        step("requests: set-up", () -> {
            get(admin.createTopics(List.of(new NewTopic(TOPIC, 2, (short) 1))).all());
            settle();
            topicId = get(admin.describeTopics(List.of(TOPIC)).allTopicNames()).get(TOPIC).topicId();
            joinUntilAssigned();
            return "assigned";
        });
        heartbeats();
        descriptions();
        coordinators();
        fetches();
        acknowledgements();
        offsets();
        step("requests: the member leaves", () -> List.of(beat(request -> request.setMemberEpoch(-1)),
            beat(request -> request.setMemberEpoch(-1))));
        step("requests: the groups go", () -> {
            List<String> groups = List.of(GROUP, "shares-state", "shares-altered", NOWHERE, "");
            return errors(groups, ask(ApiKeys.DELETE_GROUPS, 2, new DeleteGroupsRequestData().setGroupsNames(groups)));
        });
    }

    // ---- requests --------------------------------------------------------------------------------------------------

    private AbstractResponse ask(ApiKeys api, int version, ApiMessage message) throws IOException {
        return wire.ask(api, version, message);
    }

    /** The whole answer, but for what no two runs have in common. */
    private String shown(ApiKeys api, int version, ApiMessage message) throws IOException {
        String answer = ask(api, version, message).data().toString();
        return answer.replace(topicId.toString(), "TOPIC").replace(NO_TOPIC.toString(), "NO-TOPIC")
            .replaceAll("port=\\d+", "port").replaceAll("MemoryRecords\\(size=(\\d+), buffer=[^\\]]*\\]\\)", "$1 bytes")
            .replaceAll("([Ee]poch)=[1-9]\\d*", "$1=some");
    }

    private static List<String> errors(List<String> groups, AbstractResponse response) {
        Map<String, String> shown = new TreeMap<>();
        ((DeleteGroupsResponse) response).data().results().forEach(result ->
            shown.put(result.groupId(), Errors.forCode(result.errorCode()).toString()));
        return groups.stream().map(group -> group + " " + shown.get(group)).toList();
    }

    private ShareGroupHeartbeatRequestData heartbeat() {
        return new ShareGroupHeartbeatRequestData().setGroupId(GROUP).setMemberId("m").setMemberEpoch(memberEpoch);
    }

    private String beat(Consumer<ShareGroupHeartbeatRequestData> change) throws IOException {
        ShareGroupHeartbeatRequestData request = heartbeat();
        change.accept(request);
        return shown(ApiKeys.SHARE_GROUP_HEARTBEAT, 1, request);
    }

    private void joinUntilAssigned() throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (System.nanoTime() < deadline) {
            ShareGroupHeartbeatRequestData request = heartbeat();
            if (memberEpoch == 0) {
                request.setSubscribedTopicNames(List.of(TOPIC));
            }
            ShareGroupHeartbeatResponseData answer =
                ((ShareGroupHeartbeatResponse) ask(ApiKeys.SHARE_GROUP_HEARTBEAT, 1, request)).data();
            if (answer.errorCode() == 0) {
                memberEpoch = answer.memberEpoch();
            }
            if (answer.assignment() != null && !answer.assignment().topicPartitions().isEmpty()) {
                return;
            }
            Thread.sleep(100);
        }
        throw new IllegalStateException("no partitions");
    }

    private ShareFetchRequestData fetch(String member, int sessionEpoch) {
        return new ShareFetchRequestData().setGroupId(GROUP).setMemberId(member).setShareSessionEpoch(sessionEpoch)
            .setMaxWaitMs(0).setMinBytes(0).setMaxRecords(10).setBatchSize(10);
    }

    private static ShareFetchRequestData.FetchTopicCollection topics(Uuid topic, int partition, long... acknowledged) {
        ShareFetchRequestData.FetchPartition asked =
            new ShareFetchRequestData.FetchPartition().setPartitionIndex(partition);
        if (acknowledged.length > 0) {
            List<Byte> types = new ArrayList<>();
            for (int i = 2; i < acknowledged.length; i++) {
                types.add((byte) acknowledged[i]);
            }
            asked.setAcknowledgementBatches(List.of(new ShareFetchRequestData.AcknowledgementBatch()
                .setFirstOffset(acknowledged[0]).setLastOffset(acknowledged[1]).setAcknowledgeTypes(types)));
        }
        return new ShareFetchRequestData.FetchTopicCollection(List.of(new ShareFetchRequestData.FetchTopic()
            .setTopicId(topic).setPartitions(new ShareFetchRequestData.FetchPartitionCollection(
                List.of(asked).iterator()))).iterator());
    }

    private ShareAcknowledgeRequestData acknowledge(String member, int sessionEpoch, Uuid topic, int partition, long first,
        long last, int... types) {
        List<Byte> all = Arrays.stream(types).mapToObj(type -> (byte) type).toList();
        return new ShareAcknowledgeRequestData().setGroupId(GROUP).setMemberId(member).setShareSessionEpoch(sessionEpoch)
            .setTopics(new ShareAcknowledgeRequestData.AcknowledgeTopicCollection(List.of(
                new ShareAcknowledgeRequestData.AcknowledgeTopic().setTopicId(topic).setPartitions(
                    new ShareAcknowledgeRequestData.AcknowledgePartitionCollection(List.of(
                        new ShareAcknowledgeRequestData.AcknowledgePartition().setPartitionIndex(partition)
                            .setAcknowledgementBatches(List.of(new ShareAcknowledgeRequestData.AcknowledgementBatch()
                                .setFirstOffset(first).setLastOffset(last).setAcknowledgeTypes(all)))).iterator())))
                .iterator()));
    }

    // ---- steps -----------------------------------------------------------------------------------------------------

    private void wrong(String what, Consumer<ShareGroupHeartbeatRequestData> change) {
        step("requests: heartbeat, " + what, () -> beat(request -> {
            // Whoever is let in by mistake is in a group of its own.
            request.setGroupId(GROUP + "-strangers").setMemberId("stranger").setMemberEpoch(0)
                .setSubscribedTopicNames(List.of(TOPIC));
            change.accept(request);
        }));
    }

    private void heartbeats() {
        wrong("no group", request -> request.setGroupId(""));
        wrong("a blank group", request -> request.setGroupId(" \t"));
        wrong("no member", request -> request.setMemberId(""));
        wrong("a long member", request -> request.setMemberId("m".repeat(300)));
        wrong("epoch -2", request -> request.setMemberEpoch(-2));
        wrong("no topics are said", request -> request.setSubscribedTopicNames(null));
        wrong("no topics", request -> request.setSubscribedTopicNames(List.of()));
        wrong("an empty rack", request -> request.setRackId(""));
        wrong("an epoch in a group that is not there", request -> request.setGroupId(NOWHERE).setMemberEpoch(5));
        wrong("leaves a group that is not there", request -> request.setGroupId(NOWHERE).setMemberEpoch(-1));
        wrong("a member that is not there", request -> request.setGroupId(GROUP).setMemberEpoch(5));
        wrong("a member that is not there leaves", request -> request.setGroupId(GROUP).setMemberEpoch(-1));
        step("requests: heartbeat, an epoch ahead", () -> beat(request -> request.setMemberEpoch(1_000))
            .replaceAll("\\(\\d+\\)", "(n)"));
        step("requests: heartbeat, an epoch that is long gone", () -> beat(request -> request.setMemberEpoch(1))
            .replaceAll("\\(\\d+\\)", "(n)"));
        step("requests: heartbeat", () -> beat(request -> { }));
    }

    private void descriptions() {
        step("requests: described", () -> shown(ApiKeys.SHARE_GROUP_DESCRIBE, 1,
            new ShareGroupDescribeRequestData().setGroupIds(List.of(NOWHERE))));
        step("requests: described without a name", () -> shown(ApiKeys.SHARE_GROUP_DESCRIBE, 1,
            new ShareGroupDescribeRequestData().setGroupIds(List.of("")).setIncludeAuthorizedOperations(true)));
        step("requests: described with its members", () -> shown(ApiKeys.SHARE_GROUP_DESCRIBE, 1,
            new ShareGroupDescribeRequestData().setGroupIds(List.of(GROUP)).setIncludeAuthorizedOperations(true)));
        step("requests: nothing described", () -> shown(ApiKeys.SHARE_GROUP_DESCRIBE, 1,
            new ShareGroupDescribeRequestData()));
        step("requests: described by the requests of other groups", () -> List.of(
            shown(ApiKeys.CONSUMER_GROUP_DESCRIBE, 1, new ConsumerGroupDescribeRequestData().setGroupIds(List.of(GROUP))),
            shown(ApiKeys.DESCRIBE_GROUPS, 6, new DescribeGroupsRequestData().setGroups(List.of(GROUP)))));
    }

    private String initialize(Uuid topic, int partition, int stateEpoch, long offset) throws IOException {
        return shown(ApiKeys.INITIALIZE_SHARE_GROUP_STATE, 0, new InitializeShareGroupStateRequestData()
            .setGroupId("shares-state").setTopics(List.of(new InitializeShareGroupStateRequestData.InitializeStateData()
                .setTopicId(topic).setPartitions(List.of(new InitializeShareGroupStateRequestData.PartitionData()
                    .setPartition(partition).setStateEpoch(stateEpoch).setStartOffset(offset))))));
    }

    private String read(String group, Uuid topic, int partition, int leaderEpoch) throws IOException {
        return shown(ApiKeys.READ_SHARE_GROUP_STATE, 0, new ReadShareGroupStateRequestData().setGroupId(group)
            .setTopics(List.of(new ReadShareGroupStateRequestData.ReadStateData().setTopicId(topic).setPartitions(List.of(
                new ReadShareGroupStateRequestData.PartitionData().setPartition(partition)
                    .setLeaderEpoch(leaderEpoch))))));
    }

    private String summary(String group, Uuid topic, int partition) throws IOException {
        return shown(ApiKeys.READ_SHARE_GROUP_STATE_SUMMARY, 1, new ReadShareGroupStateSummaryRequestData()
            .setGroupId(group).setTopics(List.of(new ReadShareGroupStateSummaryRequestData.ReadStateSummaryData()
                .setTopicId(topic).setPartitions(List.of(new ReadShareGroupStateSummaryRequestData.PartitionData()
                    .setPartition(partition))))));
    }

    private String write(Uuid topic, int partition, int stateEpoch, int leaderEpoch, long start, long... batch)
        throws IOException {
        List<WriteShareGroupStateRequestData.StateBatch> batches = batch.length == 0 ? List.of() : List.of(
            new WriteShareGroupStateRequestData.StateBatch().setFirstOffset(batch[0]).setLastOffset(batch[1])
                .setDeliveryState((byte) batch[2]).setDeliveryCount((short) batch[3]));
        return shown(ApiKeys.WRITE_SHARE_GROUP_STATE, 1, new WriteShareGroupStateRequestData().setGroupId("shares-state")
            .setTopics(List.of(new WriteShareGroupStateRequestData.WriteStateData().setTopicId(topic).setPartitions(List.of(
                new WriteShareGroupStateRequestData.PartitionData().setPartition(partition).setStateEpoch(stateEpoch)
                    .setLeaderEpoch(leaderEpoch).setStartOffset(start).setDeliveryCompleteCount(0)
                    .setStateBatches(batches))))));
    }

    private String delete(String group, Uuid topic, int partition) throws IOException {
        return shown(ApiKeys.DELETE_SHARE_GROUP_STATE, 0, new DeleteShareGroupStateRequestData().setGroupId(group)
            .setTopics(List.of(new DeleteShareGroupStateRequestData.DeleteStateData().setTopicId(topic).setPartitions(
                List.of(new DeleteShareGroupStateRequestData.PartitionData().setPartition(partition))))));
    }

    private void coordinators() {
        String group = "shares-state";
        step("requests: a share coordinator is found", () -> {
            List<Object> shown = new ArrayList<>();
            for (String key : List.of(group, group + ":" + topicId + ":0", group + ":" + topicId + ":x", ":" + topicId + ":0")) {
                shown.add(Wire.errors(ask(ApiKeys.FIND_COORDINATOR, 6, new FindCoordinatorRequestData()
                    .setKeyType((byte) 2).setCoordinatorKeys(List.of(key)))));
            }
            return shown;
        });
        step("requests: state before there is some", () -> List.of(read(group, topicId, 0, 0),
            summary(group, topicId, 0), write(topicId, 0, 0, 0, 3), delete(group, topicId, 0)));
        step("requests: state is initialized", () -> List.of(initialize(topicId, 0, 3, 7), initialize(topicId, 0, 2, 7),
            initialize(topicId, 0, 3, 9), initialize(topicId, 0, -1, 5), initialize(topicId, 9, 3, 7),
            initialize(topicId, -1, 3, 7), initialize(NO_TOPIC, 0, 3, 7), initialize(Uuid.ZERO_UUID, 0, 3, 7)));
        step("requests: state is written", () -> List.of(write(topicId, 0, 5, 4, 11), write(topicId, 0, 2, 4, 11),
            write(topicId, 0, 5, 3, 11), write(topicId, 0, 5, 4, 11, 11, 14, 0, 2), write(topicId, 0, 5, 4, 11, 14, 11, 0, 2),
            write(topicId, 0, 5, 4, -2, 12, 12, 2, 1), write(topicId, 0, 5, 4, 11, 3, 5, 2, 1),
            write(topicId, 9, 5, 4, 11), write(topicId, -1, 5, 4, 11), write(NO_TOPIC, 0, 5, 4, 11)));
        step("requests: state is read", () -> List.of(read(group, topicId, 0, 3), read(group, topicId, 0, 4),
            read(group, topicId, 0, -1), read(group, topicId, 0, 6), read(group, topicId, 9, 6), read(group, topicId, -1, 6),
            read(group, NO_TOPIC, 0, 6), read("", topicId, 0, 6), read(NOWHERE, topicId, 0, 0)));
        step("requests: state is summed up", () -> List.of(summary(group, topicId, 0), summary(group, topicId, 1),
            summary(group, topicId, 9), summary(group, topicId, -1), summary(group, NO_TOPIC, 0), summary("", topicId, 0)));
        step("requests: state is deleted", () -> List.of(delete(group, topicId, 0), delete(group, topicId, 0),
            delete(group, topicId, 9), delete(group, topicId, -1), delete(group, NO_TOPIC, 0), delete("", topicId, 0)));
    }

    private void fetch(String what, ShareFetchRequestData request) {
        for (int version : new int[] {1, 2}) {
            step("requests: fetch, " + what + ", v" + version, () -> shown(ApiKeys.SHARE_FETCH, version, request));
        }
    }

    private void fetches() {
        fetch("no group", fetch("f0", 0).setGroupId(null));
        fetch("an empty group", fetch("f0", 0).setGroupId(""));
        fetch("no member", fetch("", 0));
        fetch("no member at all", fetch(null, 0));
        fetch("a session that is not there", fetch("f0", 5));
        fetch("the end of a session that is not there", fetch("f0", -1));
        fetch("epoch -2", fetch("f0", -2));
        fetch("acknowledges before it has a session", fetch("f0", 0).setTopics(topics(topicId, 0, 0, 0, ACCEPT)));
        fetch("nothing", fetch("f1", 0));
        // An error that is found only after the partition was looked up is reported only if the request waits for it. Ottla
        // also sends an error message (COMPATIBILITY.md).
        step("requests: fetch, a group that is not there", () -> shown(ApiKeys.SHARE_FETCH, 2,
            fetch("f2", 0).setMaxWaitMs(5_000).setGroupId(NOWHERE).setTopics(topics(topicId, 0)))
            .replaceFirst("errorMessage='[^']*'", "errorMessage=null"));
        fetch("a topic that is not there", fetch("f3", 0).setTopics(topics(NO_TOPIC, 0)));
        fetch("a topic without an id", fetch("f4", 0).setTopics(topics(Uuid.ZERO_UUID, 0)));
        fetch("a partition that is not there", fetch("f5", 0).setTopics(topics(topicId, 9)));
        fetch("a partition below none", fetch("f6", 0).setTopics(topics(topicId, -1)));
        step("requests: fetch, until the partition is read", () -> {
            int[] attempt = {0};
            await("the partition", () -> shown(ApiKeys.SHARE_FETCH, 2,
                fetch("w" + attempt[0]++, 0).setTopics(topics(topicId, 0))).contains("partitionIndex=0, errorCode=0"));
            return "read";
        });
        step("requests: fetch, a session", () -> List.of(
            shown(ApiKeys.SHARE_FETCH, 2, fetch("s", 0).setTopics(topics(topicId, 0))),
            shown(ApiKeys.SHARE_FETCH, 2, fetch("s", 1)), shown(ApiKeys.SHARE_FETCH, 2, fetch("s", 1)),
            shown(ApiKeys.SHARE_FETCH, 2, fetch("s", 7))));
        fetch("acknowledges what nobody has", fetch("s", 2).setTopics(topics(topicId, 0, 3, 4, ACCEPT)));
        step("requests: fetch, acknowledges in a session", () -> {
            List<Object> shown = new ArrayList<>();
            int epoch = 0;
            shown.add(shown(ApiKeys.SHARE_FETCH, 2, fetch("t", epoch++).setTopics(topics(topicId, 0))));
            for (long[] batch : new long[][] {{3, 4, 1}, {4, 3, 1}, {3, 4, 1, 2, 3}, {3, 4}, {3, 4, 7}, {3, 4, -1},
                {3, 4, RENEW}, {3, 4, 0}}) {
                shown.add(Arrays.toString(batch) + " " + shown(ApiKeys.SHARE_FETCH, 2,
                    fetch("t", epoch).setTopics(topics(topicId, 0, batch))));
                epoch = epoch(shown.get(shown.size() - 1), epoch);
            }
            shown.add(shown(ApiKeys.SHARE_FETCH, 2, fetch("t", epoch).setIsRenewAck(true).setMaxRecords(0).setBatchSize(0)
                .setTopics(topics(topicId, 0, 3, 4, RENEW))));
            return shown;
        });
        step("requests: fetch, a renewal that asks for records", () -> List.of(
            shown(ApiKeys.SHARE_FETCH, 2, fetch("u", 0).setTopics(topics(topicId, 0))),
            shown(ApiKeys.SHARE_FETCH, 2, fetch("u", 1).setIsRenewAck(true).setTopics(topics(topicId, 0, 3, 4, RENEW)))));
    }

    /** A request that a session took has moved it on. */
    private static int epoch(Object answer, int epoch) {
        return answer.toString().contains("throttleTimeMs=0, errorCode=0") ? epoch + 1 : epoch;
    }

    private void acknowledgement(String what, ShareAcknowledgeRequestData request) {
        for (int version : new int[] {1, 2}) {
            step("requests: acknowledge, " + what + ", v" + version, () ->
                shown(ApiKeys.SHARE_ACKNOWLEDGE, version, request));
        }
    }

    private void acknowledgements() {
        acknowledgement("no group", acknowledge("a", 1, topicId, 0, 0, 0, 1).setGroupId(null));
        acknowledgement("no member", acknowledge("", 1, topicId, 0, 0, 0, 1));
        acknowledgement("a session that is not there", acknowledge("a", 1, topicId, 0, 0, 0, 1));
        acknowledgement("a session that is to begin", acknowledge("a", 0, topicId, 0, 0, 0, 1));
        acknowledgement("the end of a session that is not there", acknowledge("a", -1, topicId, 0, 0, 0, 1));
        acknowledgement("nothing", new ShareAcknowledgeRequestData().setGroupId(GROUP).setMemberId("a")
            .setShareSessionEpoch(1));
        step("requests: acknowledge, in a session", () -> {
            List<Object> shown = new ArrayList<>();
            shown.add(shown(ApiKeys.SHARE_FETCH, 2, fetch("v", 0).setTopics(topics(topicId, 0))));
            int epoch = 1;
            List<ShareAcknowledgeRequestData> requests = List.of(acknowledge("v", 0, topicId, 0, 3, 4, 1),
                acknowledge("v", 0, topicId, 0, 4, 3, 1), acknowledge("v", 0, topicId, 0, 3, 4, 1, 2, 3),
                acknowledge("v", 0, topicId, 0, 3, 4), acknowledge("v", 0, topicId, 0, 3, 4, 7),
                acknowledge("v", 0, topicId, 0, 3, 4, RENEW), acknowledge("v", 0, topicId, 0, 3, 4, 0),
                acknowledge("v", 0, topicId, 1, 3, 4, 1), acknowledge("v", 0, topicId, 9, 3, 4, 1),
                acknowledge("v", 0, NO_TOPIC, 0, 3, 4, 1),
                acknowledge("v", 0, topicId, 0, 3, 4, RENEW).setIsRenewAck(true));
            for (ShareAcknowledgeRequestData request : requests) {
                shown.add(shown(ApiKeys.SHARE_ACKNOWLEDGE, 2, request.setShareSessionEpoch(epoch)));
                epoch = epoch(shown.get(shown.size() - 1), epoch);
            }
            shown.add(shown(ApiKeys.SHARE_ACKNOWLEDGE, 2, acknowledge("v", -1, topicId, 0, 3, 4, 1)));
            return shown;
        });
    }

    private String offsets(int version, String group, String topic, Integer... partitions) throws IOException {
        DescribeShareGroupOffsetsRequestData.DescribeShareGroupOffsetsRequestGroup asked =
            new DescribeShareGroupOffsetsRequestData.DescribeShareGroupOffsetsRequestGroup().setGroupId(group);
        asked.setTopics(topic == null ? null : topic.isEmpty() ? List.of() : List.of(
            new DescribeShareGroupOffsetsRequestData.DescribeShareGroupOffsetsRequestTopic().setTopicName(topic)
                .setPartitions(List.of(partitions))));
        return shown(ApiKeys.DESCRIBE_SHARE_GROUP_OFFSETS, version,
            new DescribeShareGroupOffsetsRequestData().setGroups(List.of(asked)));
    }

    private String alter(String group, String topic, int partition, long offset) throws IOException {
        return shown(ApiKeys.ALTER_SHARE_GROUP_OFFSETS, 0, new AlterShareGroupOffsetsRequestData().setGroupId(group)
            .setTopics(new AlterShareGroupOffsetsRequestData.AlterShareGroupOffsetsRequestTopicCollection(
                topic.isEmpty() ? Collections.emptyIterator() : List.of(
                    new AlterShareGroupOffsetsRequestData.AlterShareGroupOffsetsRequestTopic().setTopicName(topic)
                        .setPartitions(List.of(new AlterShareGroupOffsetsRequestData.AlterShareGroupOffsetsRequestPartition()
                            .setPartitionIndex(partition).setStartOffset(offset)))).iterator())));
    }

    private String forget(String group, String... topics) throws IOException {
        return shown(ApiKeys.DELETE_SHARE_GROUP_OFFSETS, 0, new DeleteShareGroupOffsetsRequestData().setGroupId(group)
            .setTopics(Arrays.stream(topics).map(topic ->
                new DeleteShareGroupOffsetsRequestData.DeleteShareGroupOffsetsRequestTopic().setTopicName(topic)).toList()));
    }

    private void offsets() {
        for (int version : new int[] {0, 1}) {
            step("requests: offsets, v" + version, () -> List.of(offsets(version, GROUP, TOPIC, 0),
                offsets(version, GROUP, TOPIC), offsets(version, GROUP, NOWHERE, 0), offsets(version, GROUP, ""), offsets(version, NOWHERE, TOPIC, 0),
                offsets(version, NOWHERE, null), offsets(version, "", TOPIC, 0), offsets(version, "", null)));
        }
        step("requests: offsets of no group", () -> shown(ApiKeys.DESCRIBE_SHARE_GROUP_OFFSETS, 1,
            new DescribeShareGroupOffsetsRequestData()));
        step("requests: offsets are set", () -> List.of(alter(GROUP, TOPIC, 0, 1), alter("", TOPIC, 0, 1),
            alter("shares-altered", NOWHERE, 0, 1), alter("shares-altered", TOPIC, 9, 1),
            alter("shares-altered", "", 0, 1), alter("shares-altered", TOPIC, 0, 5),
            alter("shares-altered", TOPIC, 0, -7), alter("implicit", NOWHERE, 0, 1)));
        step("requests: offsets after that", () -> offsets(1, "shares-altered", TOPIC, 0));
        step("requests: offsets are deleted", () -> List.of(forget(GROUP, TOPIC), forget("", TOPIC),
            forget(NOWHERE, TOPIC), forget("shares-altered", NOWHERE), forget("shares-altered"),
            forget("shares-altered", TOPIC), forget("shares-altered", TOPIC)));
    }
}
