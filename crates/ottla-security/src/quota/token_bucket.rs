//! A token bucket, for rare and large requests, which a rate over windows would throttle for too
//! long.
//!
//! Kafka: `metrics.stats.TokenBucket`, `ControllerMutationQuotaManager` (KIP-599).

use super::windows::Windows;

/// Starts full, with as many tokens as all windows hold. A request may take it below zero; then no
/// further request is admitted until it is back at zero.
#[derive(Clone, Debug, Default)]
pub struct TokenBucket {
    tokens: f64,
    filled_ms: Option<u64>,
}

impl TokenBucket {
    /// The current number of tokens, at this limit in tokens per second.
    pub fn tokens(&mut self, windows: Windows, limit: f64, now_ms: u64) -> f64 {
        let burst = windows.span_ms() as f64 / 1_000.0 * limit;
        let filled = match self.filled_ms {
            Some(filled_ms) => {
                let seconds = now_ms.saturating_sub(filled_ms) as f64 / 1_000.0;
                self.tokens + limit * seconds
            }
            None => burst,
        };
        self.filled_ms = Some(self.filled_ms.unwrap_or(0).max(now_ms));
        self.tokens = filled.min(burst);
        self.tokens
    }

    pub fn take(&mut self, windows: Windows, limit: f64, tokens: f64, now_ms: u64) {
        self.tokens = self.tokens(windows, limit, now_ms) - tokens;
    }

    /// The time until the bucket is back at zero; 0 if it is not below.
    pub fn throttle_ms(&mut self, windows: Windows, limit: f64, now_ms: u64) -> u64 {
        let tokens = self.tokens(windows, limit, now_ms);
        match tokens < 0.0 {
            true => (-tokens / limit * 1_000.0).round() as u64,
            false => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: Windows = Windows {
        count: 10,
        length_ms: 1_000,
    };

    #[test]
    fn a_burst_takes_more_than_there_is_and_waits_for_the_rest() {
        let mut bucket = TokenBucket::default();
        assert_eq!(bucket.tokens(WINDOWS, 5.0, 0), 50.0);
        bucket.take(WINDOWS, 5.0, 56.0, 0);
        assert_eq!(bucket.throttle_ms(WINDOWS, 5.0, 0), 1_200);
        assert_eq!(bucket.throttle_ms(WINDOWS, 5.0, 700), 500);
        assert_eq!(bucket.throttle_ms(WINDOWS, 5.0, 1_200), 0);
        // At most the burst, also after the limit was lowered.
        assert_eq!(bucket.tokens(WINDOWS, 5.0, 1_000_000), 50.0);
        assert_eq!(bucket.tokens(WINDOWS, 2.0, 1_000_000), 20.0);
    }
}
