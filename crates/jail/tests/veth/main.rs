//! Veth pairs. Each test has a host and an internet of its own (`isolet_kit::net`).

mod creation;
mod fixture;
mod names;
mod open;
mod repair;
mod rules;
