//! The control plane: sandboxes.

pub(super) mod create;
mod egress;
pub(super) mod health;
pub(super) mod lifecycle;
pub(super) mod list;
pub(super) mod observe;
pub(super) mod snapshots;
mod turn;
pub(super) mod view;
