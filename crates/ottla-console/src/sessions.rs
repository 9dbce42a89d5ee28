//! The sessions of logged-in users. Bounded in number, idle time and age.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;

use crate::problem::Problem;
use crate::rebalancing::Rebalance;
use crate::visit::Visit;

const SESSIONS: usize = 256;
/// Of one user, so that one cannot keep all others out.
const SESSIONS_OF_USER: usize = 8;
const IDLE: Duration = Duration::from_secs(30 * 60);
const AGE: Duration = Duration::from_secs(12 * 60 * 60);

#[derive(Default)]
pub(crate) struct Sessions {
    /// By the value of the cookie.
    by_token: Mutex<HashMap<String, Session>>,
}

struct Session {
    visit: Arc<Visit>,
    opened: Instant,
    used: Instant,
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        // A rebalance continues without an open page.
        let is_idle = now.duration_since(self.used) >= IDLE && !self.visit.rebalancing.is_running();
        // A visit ends by itself if its person's token cannot be renewed.
        self.visit.has_ended() || is_idle || now.duration_since(self.opened) >= AGE
    }
}

impl Sessions {
    /// Opens a session. Returns the value of its cookie. A user with too many loses the one that was
    /// not used for longest, of those without a rebalance if there are any.
    pub(crate) fn open(&self, visit: Arc<Visit>, now: Instant) -> Result<String, Problem> {
        let token = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        let mut sessions = self.by_token.lock();
        expire(&mut sessions, now);
        let of_user = |session: &&Session| session.visit.is_of_same_person(&visit);
        if sessions.values().filter(of_user).count() >= SESSIONS_OF_USER {
            let of_user = sessions.iter().filter(|(_, it)| of_user(it));
            // One that carries out a rebalance, whose throttles would stay, goes after all others.
            let oldest = of_user.min_by_key(|(_, it)| (it.visit.rebalancing.is_running(), it.used));
            let oldest = oldest.map(|it| it.0.clone());
            if let Some(ended) = oldest.and_then(|token| sessions.remove(&token)) {
                ended.visit.end();
            }
        }
        if sessions.len() >= SESSIONS {
            return Err(Problem::too_many(format!(
                "{SESSIONS} people are logged in; an unused session ends after {} minutes",
                IDLE.as_secs() / 60
            )));
        }
        let (opened, used) = (now, now);
        let session = Session {
            visit,
            opened,
            used,
        };
        sessions.insert(token.clone(), session);
        Ok(token)
    }

    /// The visit of a session that is not over.
    pub(crate) fn find(&self, token: &str, now: Instant) -> Option<Arc<Visit>> {
        let mut sessions = self.by_token.lock();
        expire(&mut sessions, now);
        let session = sessions.get_mut(token)?;
        session.used = now;
        Some(session.visit.clone())
    }

    pub(crate) fn close(&self, token: &str) {
        if let Some(session) = self.by_token.lock().remove(token) {
            session.visit.end();
        }
    }

    /// The newest rebalance of each session of a person, who may have lost the session that started it.
    pub(crate) fn rebalances_of(&self, visit: &Visit) -> Vec<Arc<Rebalance>> {
        let sessions = self.by_token.lock();
        let of_person = sessions.values().map(|it| &it.visit);
        let of_person = of_person.filter(|it| it.is_of_same_person(visit));
        of_person.filter_map(|it| it.rebalancing.newest()).collect()
    }

    /// Ends the sessions that are over, for a caller that does so from time to time.
    pub(crate) fn expire(&self, now: Instant) {
        expire(&mut self.by_token.lock(), now);
    }
}

fn expire(sessions: &mut HashMap<String, Session>, now: Instant) {
    sessions.retain(|_, session| {
        let is_over = session.is_over(now);
        if is_over {
            session.visit.end();
        }
        !is_over
    });
}

#[cfg(test)]
mod tests {
    use ottla_client::ClientConfig;

    use super::*;
    use crate::budget::Budget;
    use crate::sampling::Sampling;

    fn visit() -> Arc<Visit> {
        visit_of("alice")
    }

    fn visit_of(user: &str) -> Arc<Visit> {
        let config = ClientConfig::new("127.0.0.1:1").unwrap();
        let (budget, sampling) = (Budget::default(), Sampling::new(None));
        Arc::new(Visit::new(Some(user.into()), config, budget, sampling))
    }

    #[tokio::test]
    async fn a_session_ends_when_it_is_idle_and_when_it_is_old() {
        let (sessions, began) = (Sessions::default(), Instant::now());
        let idle = visit();
        let token = sessions.open(idle.clone(), began).unwrap();
        assert!(sessions.find(&token, began + IDLE / 2).is_some());
        assert!(sessions.find(&token, began + IDLE).is_some());
        assert!(sessions.find(&token, began + IDLE * 2).is_none());
        // Its streams end with it.
        idle.ended().await;

        let token = sessions.open(visit(), began).unwrap();
        let mut now = began;
        while now < began + AGE - IDLE / 2 {
            now += IDLE / 2;
            assert!(sessions.find(&token, now).is_some() || now >= began + AGE);
        }
        assert!(sessions.find(&token, began + AGE).is_none());
    }

    #[tokio::test]
    async fn a_session_is_over_when_its_visit_is() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let visit = visit();
        let token = sessions.open(visit.clone(), now).unwrap();
        assert!(sessions.find(&token, now).is_some());
        visit.end();
        assert!(sessions.find(&token, now).is_none());
    }

    #[tokio::test]
    async fn there_are_so_many_sessions_and_no_more() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let tokens: Vec<String> = (0..SESSIONS)
            .map(|user| sessions.open(visit_of(&user.to_string()), now).unwrap())
            .collect();
        let refused = sessions.open(visit_of("one more"), now).unwrap_err();
        assert_eq!(refused.status(), 429);
        sessions.close(&tokens[0]);
        assert!(sessions.find(&tokens[0], now).is_none());
        sessions.open(visit_of("one more"), now).unwrap();
        assert!(sessions.find("guessed", now).is_none());
    }

    #[tokio::test]
    async fn a_session_stays_for_its_rebalance() {
        let (sessions, began) = (Sessions::default(), Instant::now());
        let busy = visit();
        let token = sessions.open(busy.clone(), began).unwrap();
        busy.rebalancing.seem_running();
        let later = began + IDLE;
        for _ in 0..SESSIONS_OF_USER {
            sessions.open(visit(), later).unwrap();
        }
        assert!(!busy.has_ended());
        // And it is found in the user's other sessions, for example after a new login.
        assert_eq!(sessions.rebalances_of(&visit()).len(), 1);
        assert!(sessions.rebalances_of(&visit_of("bob")).is_empty());
        assert!(sessions.find(&token, later).is_some());
    }

    #[tokio::test]
    async fn people_with_one_name_at_the_cluster_and_at_the_provider_leave_each_other_in() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let token = sessions.open(visit(), now).unwrap();
        let later = now + Duration::from_secs(1);
        for _ in 0..SESSIONS_OF_USER {
            let config = ClientConfig::new("127.0.0.1:1").unwrap();
            let (budget, sampling) = (Budget::default(), Sampling::new(None));
            let other = Visit::new(Some("alice".into()), config, budget, sampling);
            let other = other.of_provider(ottla_sasl::Secret::new("a.b.c"), "alice at id".into());
            sessions.open(Arc::new(other), later).unwrap();
        }
        assert!(sessions.find(&token, later).is_some());
    }

    #[tokio::test]
    async fn sessions_of_one_user_do_not_end_sessions_of_others() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let other = sessions.open(visit_of("bob"), now).unwrap();
        let tokens: Vec<String> = (0..SESSIONS_OF_USER as u64)
            .map(|at| {
                sessions
                    .open(visit(), now + Duration::from_secs(at))
                    .unwrap()
            })
            .collect();
        let later = now + Duration::from_secs(60);
        assert!(sessions.find(&tokens[0], later).is_some());
        sessions.open(visit(), later).unwrap();
        assert!(
            sessions.find(&tokens[1], later).is_none(),
            "it was unused for longest"
        );
        assert!(sessions.find(&tokens[0], later).is_some());
        assert!(sessions.find(&other, later).is_some());
    }
}
