//! The frame of ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe: who may see which groups.

/// Defines `handle`. `$describe` is the coordinator's method, `$sees_all` decides whether the client may see the topics of a
/// group, and `$hidden` tells it that it may not.
macro_rules! group_describe {
    ($request:ident, $response:ident, $is_served:expr, $describe:ident, $sees_all:ident, $hidden:expr) => {
        pub(crate) async fn handle(
            broker: &std::sync::Arc<Broker>,
            context: &RequestContext,
            request: $request,
        ) -> $response {
            let authorizer = &broker.authorizer;
            let is_served = $is_served(broker);
            let (operation, resource) = (
                ottla_net::Operation::Describe,
                ottla_net::ResourceType::Group,
            );
            // Those that are refused come first, as with Kafka.
            let (allowed, refused): (Vec<ByteString>, Vec<ByteString>) =
                request.group_ids.into_iter().partition(|group_id| {
                    !is_served || authorizer.is_allowed(context, operation, resource, group_id)
                });
            let refused = refused.into_iter();
            let mut groups: Vec<DescribedGroup> = refused
                .map(|group_id| failed(group_id, ErrorCode::GroupAuthorizationFailed))
                .collect();
            for group_id in allowed {
                let mut group = match is_served {
                    true => describe(broker, group_id),
                    false => failed(group_id, ErrorCode::UnsupportedVersion),
                };
                if group.error_code == 0 && !$sees_all(broker, context, &group) {
                    group = DescribedGroup {
                        error_message: Some($hidden.into()),
                        ..failed(group.group_id, ErrorCode::TopicAuthorizationFailed)
                    };
                }
                if request.include_authorized_operations && group.error_code == 0 {
                    group.authorized_operations =
                        authorizer.authorized_operations(context, resource, &group.group_id);
                }
                groups.push(group);
            }
            $response {
                groups,
                ..Default::default()
            }
        }

        fn describe(broker: &Broker, group_id: ByteString) -> DescribedGroup {
            if group_id.is_empty() {
                return failed(group_id, ErrorCode::InvalidGroupId);
            }
            let described = broker
                .groups
                .coordinator_of(&group_id)
                .and_then(|shard| shard.read(|groups| groups.$describe(&group_id)));
            described.unwrap_or_else(|error| failed(group_id, error))
        }

        fn failed(group_id: ByteString, error: ErrorCode) -> DescribedGroup {
            DescribedGroup {
                group_id,
                error_code: error.code(),
                ..Default::default()
            }
        }
    };
}

pub(crate) use group_describe;
