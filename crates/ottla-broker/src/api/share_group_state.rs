//! The frame of the five APIs by which leaders of partitions and share coordinators pass state.

/// Defines `handle`: `$ask` asks the share coordinator of a partition, and `$result` is the answer for one that has a `$value`.
macro_rules! share_group_state {
    ($request:ident, $response:ident, $topic:ident, $ask:expr, |$value:pat_param| $result:expr) => {
        pub(crate) async fn handle(
            broker: &std::sync::Arc<$crate::Broker>,
            context: &ottla_net::RequestContext,
            request: $request,
        ) -> $response {
            let topics = request.topics.into_iter();
            let topics = topics.map(|topic| (topic.topic_id, topic.partitions));
            let answers = ottla_coordination::share_groups::ask_for_each(
                &broker.share_groups,
                context,
                &request.group_id,
                topics,
                |partition| partition.partition,
                $ask,
            );
            let results = answers.await.into_iter().map(|(topic_id, partitions)| {
                let partitions =
                    partitions
                        .into_iter()
                        .map(|(partition, answered)| match answered {
                            Ok($value) => PartitionResult {
                                partition,
                                ..$result
                            },
                            Err(failure) => PartitionResult {
                                partition,
                                error_code: failure.code.code(),
                                error_message: Some(failure.message),
                                ..Default::default()
                            },
                        });
                $topic {
                    topic_id,
                    partitions: partitions.collect(),
                    ..Default::default()
                }
            });
            $response {
                results: results.collect(),
                ..Default::default()
            }
        }
    };
}

pub(crate) use share_group_state;
