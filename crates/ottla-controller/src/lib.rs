//! Pure: a controller request and the cluster image give records and a response.
