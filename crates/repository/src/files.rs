//! Files of a snapshot to a stream, and back.
//!
//! Both directions follow no symbolic link, open only regular files and directories, each relative
//! to its open parent, and need neither stack nor descriptors for the depth of a tree.

pub(crate) mod extended;
pub(crate) mod extract;
pub(crate) mod hard_links;
pub(crate) mod owner_ids;
pub(crate) mod read;
pub(crate) mod source;
