//! Every request, response, metadata record and coordinator record of Kafka, generated from its schemas.
