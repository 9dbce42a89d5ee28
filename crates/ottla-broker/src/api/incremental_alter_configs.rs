//! IncrementalAlterConfigs (KIP-339): forwarded to the controller. Kafka:
//! `KafkaApis.handleIncrementalAlterConfigsRequest`.

use ottla_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use ottla_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use super::alter_configs::alter_configs;

alter_configs!(
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    incremental_alter_configs
);
