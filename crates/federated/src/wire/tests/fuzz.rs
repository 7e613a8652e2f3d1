//! Bytes that are no messages.
