//! Pure: group coordination; a request and the group state give records and a response.
