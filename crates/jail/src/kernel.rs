//! The kernel's interfaces in the shape that this crate needs. Nothing here knows of sandboxes.

pub(crate) mod absent;
pub(crate) mod file_owner;
pub(crate) mod helper_socket;
pub(crate) mod id_map;
pub(crate) mod kernel_file;
pub(crate) mod mount;
pub(crate) mod netns;
pub(crate) mod packet;
pub(crate) mod rooted;
pub(crate) mod sealed_memfd;
