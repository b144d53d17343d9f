//! Requests that one node of a fleet forwards to another: two or three real servers in one process,
//! joined by plain HTTP over loopback and by records of ownership in memory.

mod calls;
mod cluster;
mod directory;
mod disconnects;
mod lists;
mod nodes;
mod ownership;
mod pages;
mod profiles;
mod programs;
mod protocols;
mod rights;
mod tenant_isolation;
mod transfers;
