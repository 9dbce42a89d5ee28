//! Produce: appends record batches to the logs of partitions that this broker leads.

use std::sync::Arc;

use ottla_protocol::Reader;

use crate::dispatch::RequestError;
use crate::net::Answer;
use crate::{Broker, RequestContext};

pub(crate) fn start(
    _broker: &Arc<Broker>,
    context: &RequestContext,
    _reader: Reader,
) -> Result<Answer, RequestError> {
    Err(RequestError::NotServed {
        api_key: context.api_key,
        version: context.api_version,
    })
}
