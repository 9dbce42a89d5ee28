//! Client quotas: whose limit applies to a request, how much was used of it, and how long the client has to pause.
//!
//! Time comes in as milliseconds of a clock that does not go back. Nothing here locks or logs.
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
