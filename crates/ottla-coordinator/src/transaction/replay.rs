//! Loads the log into a coordinator before it accepts requests. Every record is committed by then.
//!
//! Records of newer versions are skipped, as in Kafka. A record that cannot be decoded fails the
//! loading: Kafka continues with what it has read so far, and forgets transactions that the log
//! still has. Source: `TransactionStateManager.loadTransactionMetadata`, `TransactionLog.read`.

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::DecodeError;
use ottla_protocol::coordinator_records::{TransactionRecordKey, TransactionRecordValue};
use ottla_types::Offset;

use super::coordinator::TransactionCoordinator;
use super::metadata::TransactionMetadata;
use super::record::transaction_of;
use crate::runtime::ReplayError;

impl TransactionCoordinator {
    pub fn replay(
        &mut self,
        offset: Offset,
        key: &Bytes,
        value: Option<&Bytes>,
    ) -> Result<(), ReplayError> {
        let key = TransactionRecordKey::decode(key)
            .map_err(|error| ReplayError::Key { offset, error })?;
        let record_type = key.record_type();
        let TransactionRecordKey::TransactionLog(key) = key else {
            return Ok(());
        };
        // Copied, so that it does not keep the buffer of its batch in memory.
        let transactional_id = ByteString::from(key.transactional_id.to_string());
        let Some(value) = value else {
            self.transactions.remove(&transactional_id);
            return Ok(());
        };
        let value = match TransactionRecordValue::decode(record_type, value) {
            Ok(TransactionRecordValue::TransactionLog(value)) => value,
            Ok(_) | Err(DecodeError::UnknownRecord { .. }) => return Ok(()),
            Err(error) => return Err(ReplayError::Value { offset, error }),
        };
        let transaction = transaction_of(&value).ok_or_else(|| {
            let state = value.transaction_status;
            let what = format!("gives transaction state {state}, which there is not");
            ReplayError::Invalid { offset, what }
        })?;
        let metadata = TransactionMetadata::new(transactional_id.clone(), transaction);
        self.transactions.insert(transactional_id, metadata);
        Ok(())
    }
}
