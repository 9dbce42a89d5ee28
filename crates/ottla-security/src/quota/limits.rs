//! Which limit applies to a client: Kafka's order of the eight kinds of quota entities, from a
//! user's client ID to the default client ID.
//!
//! Kafka: `ClientQuotaManager.DefaultQuotaCallback`.

use bytestring::ByteString;

use crate::name_map::NameMap;

/// One part of a quota entity: a name, or the default for names without their own limit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum QuotaPart {
    Named(ByteString),
    Default,
}

/// The limits of one quota type for all entities. Rebuilt when one changes.
#[derive(Clone, Debug, Default)]
pub struct ClientLimits {
    users: NameMap<OfUser>,
    /// For users without their own limits.
    default_user: OfUser,
    /// For client IDs, independent of the user.
    any_user: OfUser,
    is_set: bool,
}

/// The limits of one user.
#[derive(Clone, Debug, Default)]
struct OfUser {
    clients: NameMap<f64>,
    default_client: Option<f64>,
    /// For all client IDs of the user together.
    together: Option<f64>,
}

/// The limit of a request, and how it is shared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Applied {
    /// `None` if there is no limit for this client.
    pub limit: Option<f64>,
    /// Whether each user has a separate share.
    pub by_user: bool,
    /// Whether each client ID has a separate share.
    pub by_client_id: bool,
}

impl ClientLimits {
    /// Sets the limit of an entity. Has no effect if both parts are `None`, because Kafka has no
    /// such entity.
    pub fn set(&mut self, user: Option<QuotaPart>, client_id: Option<QuotaPart>, limit: f64) {
        let of_user = match user {
            None => &mut self.any_user,
            Some(QuotaPart::Default) => &mut self.default_user,
            Some(QuotaPart::Named(name)) => {
                if self.users.get(&name).is_none() {
                    self.users.insert_new(name.clone(), OfUser::default());
                }
                match self.users.get_mut(&name) {
                    Some(of_user) => of_user,
                    None => return,
                }
            }
        };
        match client_id {
            None => of_user.together = Some(limit),
            Some(QuotaPart::Default) => of_user.default_client = Some(limit),
            Some(QuotaPart::Named(name)) => {
                of_user.clients.remove(&name);
                of_user.clients.insert_new(name, limit);
            }
        }
        self.is_set = true;
    }

    /// Whether any limit is set.
    pub fn is_set(&self) -> bool {
        self.is_set
    }

    /// The limit of a client. Allocates nothing. A client without a client ID has the empty one,
    /// for which only default limits exist.
    pub fn applied(&self, user: &str, client_id: &str) -> Applied {
        let own = self.users.get(user);
        for of_user in own.into_iter().chain([&self.default_user]) {
            let of_client = of_user.clients.get(client_id).copied();
            if let Some(limit) = of_client.or(of_user.default_client) {
                return Applied::new(Some(limit), true, true);
            }
            if let Some(limit) = of_user.together {
                return Applied::new(Some(limit), true, false);
            }
        }
        let of_client = self.any_user.clients.get(client_id).copied();
        Applied::new(of_client.or(self.any_user.default_client), false, true)
    }
}

impl Applied {
    fn new(limit: Option<f64>, by_user: bool, by_client_id: bool) -> Applied {
        Applied {
            limit,
            by_user,
            by_client_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The entities in order of precedence, each with its limit and how it is shared.
    const ORDER: [(Option<&str>, Option<&str>, f64, bool, bool); 8] = [
        (Some("u"), Some("c"), 1.0, true, true),
        (Some("u"), Some("<default>"), 2.0, true, true),
        (Some("u"), None, 3.0, true, false),
        (Some("<default>"), Some("c"), 4.0, true, true),
        (Some("<default>"), Some("<default>"), 5.0, true, true),
        (Some("<default>"), None, 6.0, true, false),
        (None, Some("c"), 7.0, false, true),
        (None, Some("<default>"), 8.0, false, true),
    ];

    fn part(text: Option<&'static str>) -> Option<QuotaPart> {
        text.map(|text| match text {
            "<default>" => QuotaPart::Default,
            name => QuotaPart::Named(name.into()),
        })
    }

    fn limits(chosen: impl Fn(usize) -> bool) -> ClientLimits {
        let mut limits = ClientLimits::default();
        for (index, (user, client_id, limit, ..)) in ORDER.into_iter().enumerate() {
            if chosen(index) {
                limits.set(part(user), part(client_id), limit);
            }
        }
        limits
    }

    #[test]
    fn the_first_of_kafkas_order_applies_in_every_combination() {
        for combination in 0..256_u32 {
            let limits = limits(|index| combination & (1 << index) != 0);
            assert_eq!(limits.is_set(), combination != 0);
            let first = ORDER.into_iter().enumerate();
            let mut first = first.filter(|(index, _)| combination & (1 << index) != 0);
            let expected = match first.next() {
                Some((_, (_, _, limit, by_user, by_client_id))) => {
                    Applied::new(Some(limit), by_user, by_client_id)
                }
                None => Applied::new(None, false, true),
            };
            assert_eq!(limits.applied("u", "c"), expected, "{combination:08b}");
        }
    }

    #[test]
    fn default_quotas_apply_to_entities_without_their_own() {
        let limits = limits(|_| true);
        for (user, client_id, limit) in [
            ("u", "other", 2.0),
            ("u", "", 2.0),
            ("other", "c", 4.0),
            ("other", "other", 5.0),
            ("", "", 5.0),
        ] {
            let applied = limits.applied(user, client_id);
            assert_eq!(applied.limit, Some(limit), "{user}/{client_id}");
        }
    }

    #[test]
    fn the_question_allocates_nothing() {
        let limits = limits(|_| true);
        let asked = allocation_counter::measure(|| {
            assert!(limits.applied("u", "c").limit.is_some());
        });
        assert_eq!(asked.count_total, 0);
    }

    proptest! {
        /// The result equals that of a search through the order for each client.
        #[test]
        fn many_entities_decide_as_a_list_does(
            entities in prop::collection::btree_map((0u8..5, 0u8..5), 1u32..1_000, 0..20),
            user in 2u8..5, client_id in 2u8..5,
        ) {
            // 0 means no part, 1 the default; the others are names.
            let part = |part: u8| match part {
                0 => None,
                1 => Some(QuotaPart::Default),
                name => Some(QuotaPart::Named(name.to_string().into())),
            };
            let mut limits = ClientLimits::default();
            for ((user, client_id), limit) in &entities {
                if (*user, *client_id) != (0, 0) {
                    limits.set(part(*user), part(*client_id), f64::from(*limit));
                }
            }
            let order = [
                (user, client_id), (user, 1), (user, 0),
                (1, client_id), (1, 1), (1, 0),
                (0, client_id), (0, 1),
            ];
            let expected = order.iter().find_map(|entity| entities.get(entity));
            let applied = limits.applied(&user.to_string(), &client_id.to_string());
            prop_assert_eq!(applied.limit, expected.map(|limit| f64::from(*limit)));
        }
    }
}
