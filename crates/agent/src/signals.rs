//! The numbers of the signals that the agent sends.

pub(crate) const HUP: i32 = 1;
pub(crate) const INT: i32 = 2;
pub(crate) const KILL: i32 = 9;
pub(crate) const TERM: i32 = 15;
pub(crate) const CONT: i32 = 18;
pub(crate) const STOP: i32 = 19;
