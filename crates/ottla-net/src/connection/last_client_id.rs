//! The client ID of a connection.
//!
//! Each request names it, and it is nearly always the same. As a slice of the request, it would keep
//! the buffer that the request was read into until the request is answered, so that the next one
//! needs another buffer. As a copy, it would be an allocation for each request.

use bytestring::ByteString;

/// The client ID of the last request, in memory of its own.
#[derive(Debug, Default)]
pub(super) struct LastClientId(Option<ByteString>);

impl LastClientId {
    /// The client ID of the next request, which does not share the request's memory.
    pub(super) fn of_next(&mut self, received: Option<ByteString>) -> Option<ByteString> {
        if self.0 != received {
            self.0 = received.map(|id| ByteString::from(&*id));
        }
        self.0.clone()
    }

    /// Empty if there is none.
    pub(super) fn text(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_client_id_does_not_keep_its_request() {
        let mut last = LastClientId::default();
        for text in ["producer-1", "producer-1", "producer-2"] {
            let request = Bytes::from(format!("{text} and its records"));
            let id = ByteString::try_from(request.slice(..text.len())).unwrap();
            let own = last.of_next(Some(id));
            assert_eq!(own.as_deref(), Some(text));
            assert!(request.is_unique(), "{text} is in memory of its own");
        }
        assert_eq!(last.text(), "producer-2");
        assert_eq!(last.of_next(None), None);
        assert_eq!(last.text(), "");
    }

    #[test]
    fn requests_share_a_client_id_that_stays() {
        let mut last = LastClientId::default();
        let mut next = || last.of_next(Some("producer".into())).unwrap();
        assert_eq!(next().as_bytes().as_ptr(), next().as_bytes().as_ptr());
    }
}
