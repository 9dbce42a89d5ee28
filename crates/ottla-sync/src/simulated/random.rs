//! Random numbers for a named consumer; on a simulated host each consumer has its own stream.

use std::convert::Infallible;

use rand::RngExt;
use rand::distr::uniform::{SampleRange, SampleUniform};
use rand::distr::{Distribution, StandardUniform};

use crate::simulation::world;

/// Replaces `rand::random`.
pub fn random<T>(consumer: &'static str) -> T
where
    StandardUniform: Distribution<T>,
{
    match world::is_simulated() {
        true => StandardUniform.sample(&mut Stream(consumer)),
        false => rand::random(),
    }
}

/// Replaces `rand::random_range`.
pub fn random_range<T: SampleUniform>(consumer: &'static str, range: impl SampleRange<T>) -> T {
    match world::is_simulated() {
        true => Stream(consumer).random_range(range),
        false => rand::random_range(range),
    }
}

/// The stream of a consumer on the running thread's host.
struct Stream(&'static str);

impl rand::TryRng for Stream {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.try_next_u64().map(|number| (number >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(world::with_world(|world| world.random_u64(self.0)))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let number = world::with_world(|world| world.random_u64(self.0));
            chunk.copy_from_slice(&number.to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}
