//! Starting the agent of a session with a scope, in a sandbox that runs: `parent` in the launcher,
//! `child` in the session's namespaces.

mod child;
mod grants;
mod parent;

pub(crate) use grants::refused_grant;
pub use parent::start_scope;
