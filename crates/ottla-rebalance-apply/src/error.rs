//! Why a plan is not carried out.

use ottla_client::ClientError;

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The plan does not fit the cluster, or no longer. A sentence for people.
    #[error("{0}")]
    Refused(String),
}

impl ApplyError {
    pub(crate) fn refused(sentence: impl Into<String>) -> ApplyError {
        ApplyError::Refused(sentence.into())
    }
}
