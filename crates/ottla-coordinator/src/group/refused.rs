//! Error responses of all APIs.

use bytestring::ByteString;
use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::{
    AlterShareGroupOffsetsResponse, ConsumerGroupHeartbeatResponse,
    DeleteShareGroupOffsetsResponse, HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse,
    OffsetDeleteResponse, ShareGroupHeartbeatResponse, StreamsGroupHeartbeatResponse,
    SyncGroupResponse, consumer_group_describe_response, share_group_describe_response,
    streams_group_describe_response,
};

use super::modern::GroupError;

pub trait Refused {
    fn refused(error: impl Into<GroupError>) -> Self;
}

macro_rules! refused_with_code {
    ($($Response:ty),+) => {$(
        impl Refused for $Response {
            fn refused(error: impl Into<GroupError>) -> Self {
                Self::of_error(error.into().error)
            }
        }
    )+};
}

/// Without a message, the client shows the default message of the code.
macro_rules! refused_with_message {
    ($($Response:ty),+) => {$(
        impl Refused for $Response {
            fn refused(error: impl Into<GroupError>) -> Self {
                let GroupError { error, message } = error.into();
                Self {
                    error_code: error.code(),
                    error_message: message.map(Into::into),
                    ..Default::default()
                }
            }
        }
    )+};
}

/// For these APIs, the default message of the code is sent as well.
macro_rules! refused_with_any_message {
    ($($Response:ty),+) => {$(
        impl Refused for $Response {
            fn refused(error: impl Into<GroupError>) -> Self {
                let GroupError { error, message } = error.into();
                let message = message.map(ByteString::from);
                Self {
                    error_code: error.code(),
                    error_message: message.or(Some(error.message().into())),
                    ..Default::default()
                }
            }
        }
    )+};
}

refused_with_code!(
    JoinGroupResponse,
    SyncGroupResponse,
    HeartbeatResponse,
    LeaveGroupResponse,
    OffsetDeleteResponse
);
refused_with_message!(
    ConsumerGroupHeartbeatResponse,
    ShareGroupHeartbeatResponse,
    StreamsGroupHeartbeatResponse,
    consumer_group_describe_response::DescribedGroup,
    share_group_describe_response::DescribedGroup,
    streams_group_describe_response::DescribedGroup
);
refused_with_any_message!(
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponse
);

impl<R: Refused> Refused for Box<R> {
    fn refused(error: impl Into<GroupError>) -> Self {
        Box::new(R::refused(error))
    }
}
