import java.io.IOException;
import java.util.*;
import java.util.function.Consumer;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.requests.*;

/**
 * StreamsGroupHeartbeat and StreamsGroupDescribe as no client sends them: for groups, members, epochs, tasks and topologies
 * that are not there, of another kind, or wrong. Members have ids that this script gives them, so that everything can be
 * shown.
 */
final class StreamsRequests extends Script implements AutoCloseable {
    private static final String GROUP = "streams-requests";
    private static final String CLASSIC = "streams-requests-classic";
    private static final String CONSUMERS = "streams-requests-consumers";
    private static final String TOPIC = StreamsGroupsScript.ORDERS;
    /** Of fewer partitions. */
    private static final String SMALL = "streams-small";
    /**
     * Where a group waits for nobody before it is assigned, may be assigned anew at once, and keeps members that are silent
     * for longer than the script and the comparison of the tools take.
     */
    private static final Map<String, String> AT_ONCE = Map.of("streams.initial.rebalance.delay.ms", "0",
        "streams.assignment.interval.ms", "0", "streams.session.timeout.ms", String.valueOf(LONG_SESSION_MS));

    private final Wire wire;
    private final GroupSettings groups = new GroupSettings(admin);
    private final Map<String, Integer> epochs = new HashMap<>();
    private int strangers;

    StreamsRequests(String bootstrap) throws IOException {
        super(bootstrap);
        wire = new Wire(bootstrap);
    }

    @Override
    public void close() throws IOException {
        wire.close();
    }

    void all() {
        step("requests: set-up", () -> {
            get(admin.createTopics(List.of(new NewTopic(SMALL, 2, (short) 1))).all());
            groups.set(GROUP, AT_ONCE);
            for (String group : List.of(GROUP, CLASSIC, CONSUMERS)) {
                wire.awaitCoordinator(group);
            }
            return List.of(classicJoin(), consumerJoin(), join("m1", request -> { }), join("m2", request -> { }));
        });
        heartbeats();
        topologies();
        members();
        otherKinds();
        offsets();
        descriptions();
        step("requests: all leave", () -> List.of(beat("m1", -1, request -> { }), beat("m2", -1, request -> { }),
            beat("m1", -1, request -> { }), beat("m1", 3, request -> { })));
        step("requests: strangers leave", () -> {
            // The others would go by themselves some time later, while the tools list groups.
            Set<String> strange = new TreeSet<>();
            for (String member : new TreeSet<>(epochs.keySet())) {
                String[] parts = member.split("/");
                if (!parts[0].equals(GROUP)) {
                    beat(parts[1], -1, request -> request.setGroupId(parts[0]));
                }
                strange.add(parts[0]);
            }
            consumerLeave();
            strange.add(CONSUMERS);
            List<String> shown = new ArrayList<>();
            for (String group : strange) {
                shown.add(group + " " + Wire.errors(wire.ask(ApiKeys.DELETE_GROUPS, 2,
                    new DeleteGroupsRequestData().setGroupsNames(List.of(group)))));
            }
            epochs.clear();
            return shown;
        });
    }

    /**
     * Groups for the tools, each for `theirs` and for `ours`: one whose application has stopped, with offsets and internal
     * topics, and one with two members, of which the broker does not expect to hear soon.
     */
    void leaveBehind() {
        for (String subject : List.of("theirs", "ours")) {
            String source = "source-" + subject;
            String idle = "idle-" + subject;
            String busy = "busy-" + subject;
            step("left behind for the tools, " + subject, () -> {
                get(admin.createTopics(List.of(new NewTopic(source, 2, (short) 1))).all());
                settle();
                try (var producer = producer(Map.of())) {
                    for (int i = 0; i < 6; i++) {
                        get(producer.send(record(source, i % 2, i)));
                    }
                }
                for (String group : List.of(idle, busy)) {
                    groups.set(group, AT_ONCE);
                    wire.awaitCoordinator(group);
                }
                List<Object> shown = new ArrayList<>();
                for (String group : List.of(idle, busy)) {
                    for (String member : List.of("m1", "m2")) {
                        Consumer<StreamsGroupHeartbeatRequestData> application = request -> {
                            request.setGroupId(group).setTopology(application(group, source));
                            request.setUserEndpoint(new Endpoint().setHost("h").setPort(80));
                        };
                        if (group.equals(idle) && member.equals("m2")) {
                            continue;
                        }
                        // What is missing at that time is chance.
                        shown.add(join(member, application).startsWith("epoch given"));
                    }
                    awaitTopics(group);
                    shown.add(commit(9, group, "m1", source, own(group, "m1"), 2));
                }
                shown.add(beat("m1", -1, request -> request.setGroupId(idle)));
                return shown;
            });
        }
    }

    // ---- requests --------------------------------------------------------------------------------------------------

    /** Has a group's members say that they are alive until nothing is missing and all have what they are to have. */
    private void awaitTopics(String group) throws Exception {
        await("the topics of " + group, () -> {
            boolean isComplete = true;
            for (String member : List.of("m1", "m2")) {
                if (!epochs.containsKey(group + "/" + member)) {
                    continue;
                }
                StreamsGroupHeartbeatRequestData request = request(group, member, own(group, member));
                List<TaskIds> has = owned.getOrDefault(group + "/" + member, List.of());
                request.setActiveTasks(has).setStandbyTasks(List.of()).setWarmupTasks(List.of());
                StreamsGroupHeartbeatResponseData answer = ask(request);
                if (answer.activeTasks() != null) {
                    owned.put(group + "/" + member, answer.activeTasks().stream().map(tasks -> new TaskIds()
                        .setSubtopologyId(tasks.subtopologyId()).setPartitions(tasks.partitions())).toList());
                    isComplete = false;
                }
                isComplete &= answer.status() == null || answer.status().isEmpty();
            }
            return isComplete;
        });
    }

    private final Map<String, List<TaskIds>> owned = new HashMap<>();

    private int own(String group, String member) {
        return epochs.get(group + "/" + member);
    }

    private int own(String member) {
        return own(GROUP, member);
    }

    private static StreamsGroupHeartbeatRequestData request(String group, String member, int epoch) {
        return new StreamsGroupHeartbeatRequestData().setGroupId(group).setMemberId(member).setMemberEpoch(epoch);
    }

    private StreamsGroupHeartbeatResponseData ask(StreamsGroupHeartbeatRequestData request) throws IOException {
        StreamsGroupHeartbeatResponseData answer =
            ((StreamsGroupHeartbeatResponse) wire.ask(ApiKeys.STREAMS_GROUP_HEARTBEAT, 0, request)).data();
        if (answer.errorCode() == 0 && answer.memberEpoch() > 0) {
            epochs.put(request.groupId() + "/" + request.memberId(), answer.memberEpoch());
        }
        return answer;
    }

    /** All that the answer says but for the epoch that it gives, and for the order of the status. */
    private String beat(String member, int epoch, Consumer<StreamsGroupHeartbeatRequestData> change) throws Exception {
        StreamsGroupHeartbeatRequestData request = request(GROUP, member, epoch);
        change.accept(request);
        StreamsGroupHeartbeatResponseData answer = ask(request);
        String status = answer.status() == null ? "null" : answer.status().stream()
            .map(it -> it.statusCode() + " " + it.statusDetail()).sorted().toList().toString();
        if (answer.errorCode() != 0) {
            return Errors.forCode(answer.errorCode()) + ": " + answer.errorMessage() + ", " + status;
        }
        return "epoch " + (answer.memberEpoch() < 0 ? answer.memberEpoch() : "given") + ", " + answer.memberId()
            + ", every " + answer.heartbeatIntervalMs() + ", lag " + answer.acceptableRecoveryLag() + ", offsets every "
            + answer.taskOffsetIntervalMs() + ", " + status + ", " + tasks(answer.activeTasks()) + " "
            + tasks(answer.standbyTasks()) + " " + tasks(answer.warmupTasks()) + ", " + answer.endpointInformationEpoch()
            + " " + answer.partitionsByUserEndpoint();
    }

    private static String tasks(List<StreamsGroupHeartbeatResponseData.TaskIds> tasks) {
        return tasks == null ? "unchanged" : tasks.stream().map(it -> it.subtopologyId() + new TreeSet<>(it.partitions()))
            .sorted().toList().toString();
    }

    private String join(String member, Consumer<StreamsGroupHeartbeatRequestData> change) throws Exception {
        return beat(member, 0, request -> {
            request.setRebalanceTimeoutMs(30_000).setProcessId("process-" + member).setActiveTasks(List.of())
                .setStandbyTasks(List.of()).setWarmupTasks(List.of()).setTopology(topology(part("0", TOPIC)));
            change.accept(request);
        });
    }

    private static Topology topology(Subtopology... parts) {
        return new Topology().setEpoch(0).setSubtopologies(List.of(parts));
    }

    private static Subtopology part(String id, String... sources) {
        return new Subtopology().setSubtopologyId(id).setSourceTopics(List.of(sources));
    }

    private static TopicInfo topic(String name) {
        return new TopicInfo().setName(name);
    }

    /** Partitions anew and counts. */
    private static Topology application(String group, String source) {
        return topology(
            part("0", source).setRepartitionSinkTopics(List.of(group + "-by-repartition")),
            part("1").setRepartitionSourceTopics(List.of(topic(group + "-by-repartition")
                    .setTopicConfigs(List.of(pair("cleanup.policy", "delete")))))
                .setStateChangelogTopics(List.of(topic(group + "-count-changelog")
                    .setTopicConfigs(List.of(pair("cleanup.policy", "compact"))))));
    }

    private static KeyValue pair(String key, String value) {
        return new KeyValue().setKey(key).setValue(value);
    }

    private static List<TaskIds> owns(String subtopology, Integer... partitions) {
        return List.of(new TaskIds().setSubtopologyId(subtopology).setPartitions(List.of(partitions)));
    }

    private String classicJoin() throws Exception {
        JoinGroupRequestData request = new JoinGroupRequestData().setGroupId(CLASSIC).setMemberId("")
            .setProtocolType("connect").setSessionTimeoutMs(LONG_SESSION_MS).setRebalanceTimeoutMs(LONG_SESSION_MS)
            .setProtocols(new JoinGroupRequestData.JoinGroupRequestProtocolCollection(List.of(new JoinGroupRequestData
                .JoinGroupRequestProtocol().setName("range").setMetadata(new byte[] {1})).iterator()));
        return Wire.errors(wire.ask(ApiKeys.JOIN_GROUP, 3, request));
    }

    private String consumerJoin() throws Exception {
        return Wire.errors(wire.ask(ApiKeys.CONSUMER_GROUP_HEARTBEAT, 1, new ConsumerGroupHeartbeatRequestData()
            .setGroupId(CONSUMERS).setMemberId("c1").setMemberEpoch(0).setRebalanceTimeoutMs(30_000)
            .setSubscribedTopicNames(List.of(TOPIC)).setTopicPartitions(List.of())));
    }

    private void consumerLeave() throws Exception {
        wire.ask(ApiKeys.CONSUMER_GROUP_HEARTBEAT, 1, new ConsumerGroupHeartbeatRequestData()
            .setGroupId(CONSUMERS).setMemberId("c1").setMemberEpoch(-1));
    }

    // ---- steps -----------------------------------------------------------------------------------------------------

    /** Whoever is let in by mistake is in a group of its own. */
    private void wrong(String what, Consumer<StreamsGroupHeartbeatRequestData> change) {
        String group = GROUP + "-strangers-" + strangers++;
        step("requests: " + what, () -> join("stranger", request -> {
            request.setGroupId(group);
            change.accept(request);
        }));
    }

    private void wrongTopology(String what, Topology topology) {
        wrong(what, request -> request.setTopology(topology));
    }

    private void heartbeats() {
        wrong("no group", request -> request.setGroupId(""));
        wrong("a blank group", request -> request.setGroupId(" \t"));
        wrong("no member", request -> request.setMemberId(""));
        wrong("a blank member", request -> request.setMemberId(" "));
        wrong("epoch -3", request -> request.setMemberEpoch(-3));
        wrong("epoch -2", request -> request.setMemberEpoch(-2));
        wrong("a name of its own", request -> request.setInstanceId("named"));
        wrong("an empty name", request -> request.setInstanceId(""));
        wrong("an empty rack", request -> request.setRackId(""));
        wrong("no rebalance timeout", request -> request.setRebalanceTimeoutMs(-1));
        wrong("no process", request -> request.setProcessId(null));
        wrong("no topology", request -> request.setTopology(null));
        wrong("active tasks are not said", request -> request.setActiveTasks(null));
        wrong("standby tasks are not said", request -> request.setStandbyTasks(null));
        wrong("warm-up tasks are not said", request -> request.setWarmupTasks(null));
        wrong("joins with active tasks", request -> request.setActiveTasks(owns("0", 0)));
        wrong("joins with standby tasks", request -> request.setStandbyTasks(owns("0", 0)));
        wrong("joins with warm-up tasks", request -> request.setWarmupTasks(owns("0", 0)));
        wrong("offsets of tasks", request -> request.setTaskOffsets(List.of(new TaskOffset().setSubtopologyId("0"))));
        wrong("end offsets of tasks", request -> request.setTaskEndOffsets(List.of()));
        wrong("a topology with an epoch", request -> request.setMemberEpoch(3));
        wrong("an epoch in a group that is not there", request -> request.setMemberEpoch(3).setTopology(null));
        wrong("one kind of tasks with an epoch", request -> request.setMemberEpoch(3).setTopology(null)
            .setStandbyTasks(null));
        wrong("leaves a group that is not there", request -> request.setMemberEpoch(-1).setTopology(null));
        wrong("a member that is not there", request -> request.setGroupId(GROUP).setMemberEpoch(3).setTopology(null));
        wrong("a member that is not there leaves",
            request -> request.setGroupId(GROUP).setMemberEpoch(-1).setTopology(null));
        wrong("a tag twice", request -> request.setClientTags(List.of(pair("a", "1"), pair("a", "2"))));
        wrong("an endpoint", request -> request.setUserEndpoint(new Endpoint().setHost("h").setPort(80)));
        wrong("wants all to stop", request -> request.setShutdownApplication(true));
    }

    private void topologies() {
        wrongTopology("no subtopologies", topology());
        wrongTopology("a subtopology without topics", topology(part("0")));
        wrongTopology("a subtopology twice", topology(part("0", TOPIC), part("0", SMALL)));
        wrongTopology("epoch -1 of the topology", topology(part("0", TOPIC)).setEpoch(-1));
        wrongTopology("epoch 7 of the topology", topology(part("0", TOPIC)).setEpoch(7));
        wrongTopology("an expression for sources", topology(part("0").setSourceTopicRegex(List.of("a.*"))));
        wrongTopology("a source of the broker's own", topology(part("0", "__consumer_offsets", "__share_group_state")));
        wrongTopology("a changelog of the broker's own",
            topology(part("0", TOPIC).setStateChangelogTopics(List.of(topic("__transaction_state")))));
        wrongTopology("names that are none", topology(part("0", "a/b", ""), part("1", "..")));
        wrongTopology("sources that are not there", topology(part("0", "streams-nowhere", TOPIC, "streams-neither")));
        wrongTopology("a changelog with partitions",
            topology(part("0", TOPIC).setStateChangelogTopics(List.of(topic("streams-x").setPartitions(4)))));
        wrongTopology("a repartition topic that nobody writes",
            topology(part("0", TOPIC).setRepartitionSourceTopics(List.of(topic("streams-x")))));
        wrongTopology("a repartition topic that nobody reads",
            topology(part("0", TOPIC).setRepartitionSinkTopics(List.of("streams-x"))));
        wrongTopology("a subtopology that repartitions for itself", topology(part("0")
            .setRepartitionSinkTopics(List.of("streams-x")).setRepartitionSourceTopics(List.of(topic("streams-x")))));
        wrongTopology("sources that do not go together", topology(part("0", TOPIC, SMALL).setCopartitionGroups(
            List.of(new CopartitionGroup().setSourceTopics(List.of((short) 0, (short) 1))))));
        wrongTopology("indexes of no topics", topology(part("0", TOPIC).setCopartitionGroups(
            List.of(new CopartitionGroup().setSourceTopics(List.of((short) 5))))));
        wrongTopology("repartition topics that do not go together", topology(
            part("0", TOPIC).setRepartitionSinkTopics(List.of("streams-x", "streams-y")),
            part("1").setRepartitionSourceTopics(List.of(topic("streams-x").setPartitions(3),
                topic("streams-y").setPartitions(5))).setCopartitionGroups(List.of(new CopartitionGroup()
                    .setRepartitionSourceTopics(List.of((short) 0, (short) 1))))));
        wrongTopology("a changelog that is there with other partitions",
            topology(part("0", TOPIC).setStateChangelogTopics(List.of(topic(SMALL)))));
        Topology many = topology(part("0", TOPIC).setStateChangelogTopics(List.of(
            topic("streams-many-a").setReplicationFactor((short) 9), topic("streams-many-b").setReplicationFactor((short) 9),
            topic("streams-many-c").setReplicationFactor((short) 9), topic("streams-many-d").setReplicationFactor((short) 9))));
        cannotBeMade("many changelogs", many);
        cannotBeMade("a changelog with a setting that is none", topology(part("0", TOPIC).setStateChangelogTopics(
            List.of(topic("streams-z").setTopicConfigs(List.of(pair("no.such.key", "1")))))));
    }

    /** What a member is told once the creation of its topics has failed; whether that is before the first answer is chance. */
    private void cannotBeMade(String what, Topology topology) {
        String group = GROUP + "-cannot-" + strangers++;
        step("requests: cannot be made, " + what, () -> {
            join("m1", request -> request.setGroupId(group).setTopology(topology));
            String[] told = new String[1];
            await("a failure", () -> {
                told[0] = beat("m1", own(group, "m1"), request -> request.setGroupId(group));
                return told[0].contains("Creation failed");
            });
            // Which three of them are named is chance.
            return told[0].replaceAll("streams-many-[abcd] ", "streams-many ");
        });
    }

    private void members() {
        step("requests: what each has", () -> {
            List<String> shown = new ArrayList<>();
            for (int round = 0; round < 2; round++) {
                shown.add(beat("m1", own("m1"), request -> says(request, owns("0", 0, 1))));
                shown.add(beat("m2", own("m2"), request -> says(request, List.of())));
            }
            return shown;
        });
        step("requests: epoch ahead", () -> beat("m1", own("m1") + 1, request -> { }));
        step("requests: epoch behind", () -> beat("m1", own("m1") - 1, request -> { }));
        step("requests: epoch behind with its tasks",
            () -> beat("m1", own("m1") - 1, request -> says(request, owns("0", 0))));
        step("requests: epoch far behind", () -> beat("m1", 1, request -> says(request, owns("0", 0))));
        step("requests: tasks of somebody else",
            () -> beat("m1", own("m1"), request -> says(request, owns("0", 0, 1, 2, 3))));
        step("requests: tasks that are not there", () -> beat("m1", own("m1"), request -> says(request, owns("0", 77))));
        step("requests: task -1", () -> beat("m1", own("m1"), request -> says(request, owns("0", -1))));
        step("requests: a subtopology that is not there",
            () -> beat("m1", own("m1"), request -> says(request, owns("7", 0))));
        step("requests: one kind of tasks", () -> beat("m1", own("m1"), request -> request.setActiveTasks(List.of())));
        step("requests: warm-up tasks", () -> beat("m1", own("m1"), request -> {
            says(request, List.of());
            request.setWarmupTasks(owns("0", 0));
        }));
        step("requests: joins again", () -> join("m1", request -> { }));
        step("requests: joins with another topology",
            () -> join("m3", request -> request.setTopology(topology(part("0", SMALL)))));
        step("requests: joins with a newer topology",
            () -> join("m3", request -> request.setTopology(topology(part("0", TOPIC)).setEpoch(1))));
        step("requests: joins with an endpoint", () -> join("m2", request ->
            request.setUserEndpoint(new Endpoint().setHost("h").setPort(80))));
        step("requests: knows the endpoints", () -> beat("m1", own("m1"), request ->
            request.setEndpointInformationEpoch(1)));
        step("requests: says where it is, and its tags", () -> beat("m1", own("m1"), request ->
            request.setUserEndpoint(new Endpoint().setHost("other").setPort(65_535)).setRackId("r")
                .setClientTags(List.of(pair("a", "b")))));
        step("requests: one wants all to stop", () -> List.of(
            beat("m2", own("m2"), request -> request.setShutdownApplication(true)),
            beat("m1", own("m1"), request -> { })));
    }

    private static void says(StreamsGroupHeartbeatRequestData request, List<TaskIds> active) {
        request.setActiveTasks(active).setStandbyTasks(List.of()).setWarmupTasks(List.of());
    }

    /** Groups of other kinds, and the other protocols on a streams group. */
    private void otherKinds() {
        for (String group : List.of(CLASSIC, CONSUMERS)) {
            step("requests: joins " + group, () -> join("m1", request -> request.setGroupId(group)));
            step("requests: an epoch in " + group, () -> beat("m1", 3, request -> request.setGroupId(group)));
            step("requests: leaves " + group, () -> beat("m1", -1, request -> request.setGroupId(group)));
        }
        step("requests: a consumer joins", () -> {
            ConsumerGroupHeartbeatResponseData answer = ((ConsumerGroupHeartbeatResponse) wire.ask(
                ApiKeys.CONSUMER_GROUP_HEARTBEAT, 1, new ConsumerGroupHeartbeatRequestData().setGroupId(GROUP)
                    .setMemberId("c1").setMemberEpoch(0).setRebalanceTimeoutMs(30_000)
                    .setSubscribedTopicNames(List.of(TOPIC)).setTopicPartitions(List.of()))).data();
            return Errors.forCode(answer.errorCode()) + ": " + answer.errorMessage();
        });
        step("requests: classic requests", () -> List.of(
            Wire.errors(wire.ask(ApiKeys.JOIN_GROUP, 3, new JoinGroupRequestData().setGroupId(GROUP).setMemberId("")
                .setProtocolType("consumer").setSessionTimeoutMs(30_000).setRebalanceTimeoutMs(30_000)
                .setProtocols(new JoinGroupRequestData.JoinGroupRequestProtocolCollection(List.of(new JoinGroupRequestData
                    .JoinGroupRequestProtocol().setName("range").setMetadata(new byte[0])).iterator())))),
            Wire.errors(wire.ask(ApiKeys.SYNC_GROUP, 5, new SyncGroupRequestData().setGroupId(GROUP).setMemberId("m1")
                .setGenerationId(own("m1")).setProtocolType("consumer").setProtocolName("range"))),
            Wire.errors(wire.ask(ApiKeys.HEARTBEAT, 4, new HeartbeatRequestData().setGroupId(GROUP).setMemberId("m1")
                .setGenerationId(own("m1")))),
            Wire.errors(wire.ask(ApiKeys.LEAVE_GROUP, 5, new LeaveGroupRequestData().setGroupId(GROUP).setMembers(
                List.of(new LeaveGroupRequestData.MemberIdentity().setMemberId("m1")))))));
    }

    private String commit(int version, String group, String member, String topic, int epoch) throws Exception {
        return commit(version, group, member, topic, epoch, 0);
    }

    private String commit(int version, String group, String member, String topic, int epoch, long offset)
        throws Exception {
        OffsetCommitRequestData request = new OffsetCommitRequestData().setGroupId(group).setMemberId(member)
            .setGenerationIdOrMemberEpoch(epoch).setTopics(List.of(new OffsetCommitRequestData.OffsetCommitRequestTopic()
                .setName(topic).setPartitions(List.of(new OffsetCommitRequestData.OffsetCommitRequestPartition()
                    .setPartitionIndex(0).setCommittedOffset(offset).setCommittedMetadata("m")))));
        return Wire.errors(wire.ask(ApiKeys.OFFSET_COMMIT, version, request));
    }

    private String fetch(int version, String member, int epoch) throws Exception {
        OffsetFetchRequestData request = new OffsetFetchRequestData().setGroups(List.of(
            new OffsetFetchRequestData.OffsetFetchRequestGroup().setGroupId(GROUP).setMemberId(member)
                .setMemberEpoch(epoch).setTopics(List.of(new OffsetFetchRequestData.OffsetFetchRequestTopics()
                    .setName(TOPIC).setPartitionIndexes(List.of(0))))));
        return Wire.errors(wire.ask(ApiKeys.OFFSET_FETCH, version, request));
    }

    private void offsets() {
        for (int version : new int[] {8, 9}) {
            step("requests: offset commit v" + version, () -> {
                int epoch = own("m1");
                return List.of(commit(version, GROUP, "m1", TOPIC, epoch), commit(version, GROUP, "m1", TOPIC, epoch + 1),
                    commit(version, GROUP, "m1", TOPIC, epoch - 1), commit(version, GROUP, "m1", SMALL, epoch - 1),
                    commit(version, GROUP, "m1", TOPIC, 1), commit(version, GROUP, "m1", TOPIC, -1),
                    commit(version, GROUP, "nobody", TOPIC, epoch), commit(version, GROUP, "", TOPIC, -1),
                    commit(version, GROUP, "", TOPIC, epoch));
            });
            step("requests: offset fetch v" + version, () -> {
                int epoch = own("m1");
                return List.of(fetch(version, "m1", epoch), fetch(version, "m1", epoch + 1), fetch(version, "m1", epoch - 1),
                    fetch(version, "nobody", epoch), fetch(version, "nobody", -1), fetch(version, "", epoch),
                    fetch(version, null, -1));
            });
        }
        step("requests: offset delete", () -> {
            List<String> shown = new ArrayList<>();
            for (String topic : List.of(TOPIC, SMALL, "streams-nowhere")) {
                shown.add(Wire.errors(wire.ask(ApiKeys.OFFSET_DELETE, 0, new OffsetDeleteRequestData().setGroupId(GROUP)
                    .setTopics(new OffsetDeleteRequestData.OffsetDeleteRequestTopicCollection(List.of(
                        new OffsetDeleteRequestData.OffsetDeleteRequestTopic().setName(topic).setPartitions(List.of(
                            new OffsetDeleteRequestData.OffsetDeleteRequestPartition().setPartitionIndex(0)))).iterator())))));
            }
            return shown;
        });
        step("requests: group delete", () -> Wire.errors(wire.ask(ApiKeys.DELETE_GROUPS, 2,
            new DeleteGroupsRequestData().setGroupsNames(List.of(GROUP)))));
    }

    private void descriptions() {
        for (boolean withOperations : new boolean[] {false, true}) {
            step("requests: described" + (withOperations ? " with operations" : ""), () -> {
                StreamsGroupDescribeResponseData answer = ((StreamsGroupDescribeResponse) wire.ask(
                    ApiKeys.STREAMS_GROUP_DESCRIBE, 0, new StreamsGroupDescribeRequestData().setGroupIds(List.of(GROUP,
                        CLASSIC, CONSUMERS, GROUP + "-nowhere", "", GROUP)).setIncludeAuthorizedOperations(withOperations)))
                    .data();
                // Groups on several partitions of the offsets topic may come in another order.
                return answer.groups().stream().map(group -> group.groupId() + " " + Errors.forCode(group.errorCode()) + " "
                    + group.errorMessage() + " " + group.groupState() + " " + (group.groupEpoch() == group.assignmentEpoch())
                    + " " + group.authorizedOperations() + " " + group.topology() + " " + group.members().stream().map(
                        member -> member.memberId() + " " + (member.memberEpoch() == group.groupEpoch()) + " "
                        + member.instanceId() + " " + member.rackId() + " " + member.clientId() + " " + member.clientHost()
                        + " " + member.topologyEpoch() + " " + member.processId() + " " + member.userEndpoint() + " "
                        + member.clientTags() + " " + member.taskOffsets() + " " + member.taskEndOffsets() + " "
                        + member.isClassic() + " " + member.assignment() + " " + member.targetAssignment()).sorted()
                        .toList()).sorted().toList();
            });
        }
        // How far those are that have just been made depends on the time.
        step("requests: listed", () -> get(admin.listGroups().all()).stream()
            .filter(group -> group.groupId().startsWith(GROUP)).map(group -> group.groupId() + " " + group.protocol() + " "
                + group.type().orElse(null) + " "
                + (group.groupId().equals(GROUP) ? group.groupState().orElse(null) : "-")).sorted().toList());
    }
}
