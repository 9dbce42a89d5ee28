//! The two kinds of listeners.

use ottla_net::ListenerInfo;

/// The kind of a listener. An API can be served on one kind, or differently on both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoint {
    Broker,
    Controller,
}

impl Endpoint {
    pub(crate) fn of(listener: &ListenerInfo) -> Endpoint {
        match listener.is_controller {
            true => Endpoint::Controller,
            false => Endpoint::Broker,
        }
    }
}
