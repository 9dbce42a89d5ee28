//! `uniform`: all members get the same number of partitions, plus or minus one, and keep their
//! partitions if possible.
//! Source: `UniformAssignor`.

use super::{heterogeneous, homogeneous};
use crate::group::modern::assignor::GroupAssignment;
use crate::group::modern::{Assignor, AssignorError, GroupSpec, SubscriptionType};

#[derive(Debug)]
pub struct UniformAssignor;

impl Assignor for UniformAssignor {
    fn name(&self) -> &'static str {
        "uniform"
    }

    fn assign(&self, spec: &GroupSpec<'_>) -> Result<GroupAssignment, AssignorError> {
        Ok(match spec.subscription_type {
            SubscriptionType::Homogeneous => homogeneous::assign(spec),
            SubscriptionType::Heterogeneous => heterogeneous::assign(spec),
        })
    }
}
