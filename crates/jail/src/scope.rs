//! Starting the agent of a session with a scope, in a running sandbox: `parent` in the launcher,
//! `enter` in two children on the path into the sandbox, `child` in the namespaces of the scope.
//!
//! The grants pass through three stages and never go back: `grants` opens the granted paths in the
//! launcher, `trees` copies their mounts in the sandbox's mount namespace, and `workspace` attaches
//! the copies in that of the scope.

mod agent_group;
mod child;
mod enter;
mod grants;
mod parent;
mod sandbox_agent;
mod scope_error;
mod trees;
mod workspace;

pub use parent::start_scope;
pub use scope_error::ScopeError;
