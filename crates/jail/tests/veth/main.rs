//! Veth pairs, against a host and an internet of each test's own (`isolet_kit::net`).

mod born;
mod given;
mod mended;
mod names;
mod open;
mod rules;
