//! DescribeGroups and ListGroups, from the committed state. Source:
//! `GroupMetadataManager.describeGroups` and `listGroups`; KIP-518 (states), KIP-848 (types).

use std::collections::HashSet;

use bytestring::ByteString;
use ottla_protocol::messages::describe_groups_response::DescribedGroup;
use ottla_protocol::messages::list_groups_response::ListedGroup;
use ottla_types::ErrorCode;

use super::classic_group::{CONSUMER_PROTOCOL_TYPE, ClassicGroup, ClassicGroupState};
use super::coordinator::{Group, GroupCoordinator};
use crate::runtime::Timeline;

/// The state that is reported for a group that does not exist.
const DEAD: &str = "Dead";
/// Kafka's names of the group types.
const CLASSIC: &str = "classic";
const CONSUMER: &str = "consumer";
const SHARE: &str = "share";
const STREAMS: &str = "streams";

impl GroupCoordinator {
    /// `reports_not_found`: whether the client's version supports an error for a group that does
    /// not exist. Older versions get the state `Dead` without an error.
    pub fn describe_group(&self, group_id: &ByteString, reports_not_found: bool) -> DescribedGroup {
        let group = self.committed_group(group_id);
        if let Some(Group::Classic(group)) = group {
            return described(group);
        }
        let is_of_another_kind = group.is_some();
        let mut group = DescribedGroup {
            group_id: group_id.clone(),
            group_state: DEAD.into(),
            ..Default::default()
        };
        if reports_not_found {
            group.error_code = ErrorCode::GroupIdNotFound.code();
            group.error_message = Some(if is_of_another_kind {
                format!("Group {group_id} is not a classic group.").into()
            } else {
                format!("Group {group_id} not found.").into()
            });
        }
        group
    }

    /// An empty filter matches everything. A filter with only unknown names matches nothing.
    pub fn list_groups(
        &self,
        states_filter: &[ByteString],
        types_filter: &[ByteString],
    ) -> Vec<ListedGroup> {
        let states: HashSet<String> = states_filter
            .iter()
            .map(|state| state.trim().to_lowercase())
            .collect();
        let types: HashSet<String> = types_filter
            .iter()
            .map(|name| name.to_lowercase())
            .collect();
        let passes = |state: &str, group_type: &str| {
            (states.is_empty() || states.contains(&state.to_lowercase()))
                && (types.is_empty() || types.contains(&group_type.to_lowercase()))
        };

        let mut listed = Vec::new();
        for group in self.groups.values().filter_map(Timeline::committed) {
            let filter_name = match group {
                Group::Streams(group) => Some(group.state().filter_name()),
                Group::Classic(_) | Group::Consumer(_) | Group::Share(_) => None,
            };
            let group = listed_group(group);
            if passes(filter_name.unwrap_or(&group.group_state), &group.group_type) {
                listed.push(group);
            }
        }
        listed
    }
}

fn listed_group(group: &Group) -> ListedGroup {
    match group {
        Group::Classic(group) => ListedGroup {
            group_id: group.group_id().clone(),
            protocol_type: group.protocol_type().cloned().unwrap_or_default(),
            group_state: group.state().name().into(),
            group_type: CLASSIC.into(),
            ..Default::default()
        },
        Group::Consumer(group) => ListedGroup {
            group_id: group.group_id.clone(),
            protocol_type: CONSUMER_PROTOCOL_TYPE.into(),
            group_state: group.state().name().into(),
            group_type: CONSUMER.into(),
            ..Default::default()
        },
        Group::Share(group) => ListedGroup {
            group_id: group.group_id.clone(),
            protocol_type: SHARE.into(),
            group_state: group.state_name().into(),
            group_type: SHARE.into(),
            ..Default::default()
        },
        Group::Streams(group) => ListedGroup {
            group_id: group.group_id.clone(),
            protocol_type: STREAMS.into(),
            group_state: group.state().name().into(),
            group_type: STREAMS.into(),
            ..Default::default()
        },
    }
}

fn described(group: &ClassicGroup) -> DescribedGroup {
    // Outside `Stable` no protocol is selected, so none is reported.
    let agreed = match group.state() {
        ClassicGroupState::Stable => group.protocol_name().cloned(),
        _ => None,
    };
    DescribedGroup {
        group_id: group.group_id().clone(),
        group_state: group.state().name().into(),
        protocol_type: group.protocol_type().cloned().unwrap_or_default(),
        members: group
            .members()
            .map(|member| member.describe(agreed.as_deref()))
            .collect(),
        protocol_data: agreed.unwrap_or_default(),
        ..Default::default()
    }
}
