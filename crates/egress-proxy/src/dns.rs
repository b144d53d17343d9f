//! The DNS side of the egress proxy. `tcp` and `udp` read queries, `answer` applies the rules to
//! one query, `resolve` finds the addresses of a name, and `upstream` queries the resolvers.

mod answer;
pub(crate) mod resolve;
pub(crate) mod tcp;
pub(crate) mod udp;
mod upstream;
