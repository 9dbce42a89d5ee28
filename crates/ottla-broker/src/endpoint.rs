//! The two kinds of listeners.

use ottla_net::ListenerInfo;

/// Who talks at a listener: an API can be served differently, or not at all, to controllers' clients.
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
