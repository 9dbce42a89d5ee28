//! Client quotas: which limit applies to a request, how much of it is used, and how long the client
//! is throttled.
//!
//! Time is passed in as milliseconds of a monotonic clock. Nothing here locks or logs.
//!
//! Kafka: `ClientQuotaManager` with its `DefaultQuotaCallback`, `metrics.stats.Rate`, `TokenBucket`, `QuotaUtils`.

mod ledger;
mod limits;
mod mutations;
mod token_bucket;
mod windows;

pub use ledger::{ClientUsage, Ledger};
pub use limits::{Applied, ClientLimits, QuotaPart};
pub use mutations::{MutationQuota, QuotaExceeded};
pub use token_bucket::TokenBucket;
pub use windows::{Rate, WindowedSum, Windows};
