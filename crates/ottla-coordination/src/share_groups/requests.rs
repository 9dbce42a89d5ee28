//! Requests of clients to share coordinators: many share partitions at once, each with a
//! coordinator of its own.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::persister::{SharePartitionKey, StateFailure};
use ottla_net::{Operation, RequestContext, ResourceType};
use ottla_types::{ErrorCode, Uuid};

use super::coordinators::ShareCoordinators;
use super::persister::each_with;
use super::questions::{ResponseOf, StateQuestion, TopicAnswers};

/// Whether the client is authorized as a broker of the cluster.
fn may_ask_coordinators(
    coordinators: &ShareCoordinators,
    context: &RequestContext,
) -> Result<(), StateFailure> {
    let (act, of_cluster) = (Operation::ClusterAction, ResourceType::Cluster);
    let authorizer = &coordinators.surroundings.authorizer;
    if authorizer.is_allowed(context, act, of_cluster, "kafka-cluster") {
        Ok(())
    } else {
        Err(ErrorCode::ClusterAuthorizationFailed.into())
    }
}

/// Answers a request about the share partitions of a group.
pub async fn answer<Q: StateQuestion>(
    coordinators: &Arc<ShareCoordinators>,
    context: &RequestContext,
    request: Q::Request,
) -> ResponseOf<Q> {
    let (group_id, topics) = Q::topics_of(request);
    let answers = ask_for_each(
        coordinators,
        context,
        &group_id,
        topics,
        Q::index_of,
        |coordinators, key, partition| {
            let question = Q::of_partition(key, partition);
            async move { question.ask_here(&coordinators).await }
        },
    );
    Q::to_response(answers.await)
}

/// Asks for several share partitions of a request concurrently, since each has its own coordinator.
/// The answers are in the order of the request. If the client lacks `CLUSTER_ACTION`, all answers
/// are failures and no coordinator is called.
pub async fn ask_for_each<P, T, F>(
    coordinators: &Arc<ShareCoordinators>,
    context: &RequestContext,
    group_id: &ByteString,
    topics: impl IntoIterator<Item = (Uuid, Vec<P>)>,
    number_of: impl Fn(&P) -> i32,
    ask: impl Fn(Arc<ShareCoordinators>, SharePartitionKey, P) -> F,
) -> Vec<TopicAnswers<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StateFailure>> + Send + 'static,
{
    let refused = may_ask_coordinators(coordinators, context).err();
    // Kafka returns no partitions in this case.
    if group_id.is_empty() && refused.is_none() {
        return Vec::new();
    }
    let (mut numbers, mut questions) = (Vec::new(), Vec::new());
    for (topic_id, partitions) in topics {
        let of_topic: Vec<i32> = partitions.iter().map(&number_of).collect();
        if refused.is_none() {
            questions.extend(of_topic.iter().zip(partitions).map(|(number, partition)| {
                let key = SharePartitionKey {
                    group_id: group_id.clone(),
                    topic_id,
                    partition: *number,
                };
                (key, partition)
            }));
        }
        numbers.push((topic_id, of_topic));
    }
    let answers = each_with(coordinators, questions, |coordinators, (key, partition)| {
        ask(coordinators, key, partition)
    });
    let mut answers = answers.await.into_iter();
    let mut answer = || match &refused {
        Some(failure) => Err(failure.clone()),
        None => answers.next().expect("each question has an answer"),
    };
    let topics = numbers.into_iter().map(|(topic_id, numbers)| {
        let answered = numbers.into_iter().map(|number| (number, answer()));
        (topic_id, answered.collect())
    });
    topics.collect()
}
