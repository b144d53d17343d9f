//! What every layer uses: errors, JSON, queries, text, and the limits on what a client may send.

pub(crate) mod base_url;
pub(crate) mod binary;
pub(crate) mod creation;
pub(crate) mod denied;
pub(crate) mod error;
pub(crate) mod event_encoding;
pub(crate) mod extensions;
pub(crate) mod form;
pub(crate) mod input;
pub(crate) mod json;
pub(crate) mod json_text;
pub(crate) mod lost;
pub(crate) mod pagination;
pub(crate) mod query;
pub(crate) mod request_id;
pub(crate) mod signals;
pub(crate) mod time;
pub(crate) mod trace;
pub(crate) mod upload_body;
pub(crate) mod utf8_stream;
