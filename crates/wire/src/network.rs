//! Where a sandbox may connect to: `rules` of a policy and what follows from them, `addresses` that
//! are closed whatever the rules say, and the messages between the process that owns the veth pairs
//! and the egress proxy (`edge`).
//!
//! A rule is a place, with or without a port. Deny goes before allow; what no rule allows is
//! refused. Some addresses are closed whatever the rules say ([`closed`]): they lead to this
//! machine and its neighbours. Only whoever runs the server opens them.

mod addresses;
mod egress_proxy;
mod refusal;
mod resolver;
mod rules;

pub use addresses::{CLOSED, Guard, closed};
pub use egress_proxy::{PACKET_BYTES_MAX, ProxyRequest, ProxyResponse};
pub use refusal::{
    BAD_REQUEST, HEADERS_TOO_LONG, LIMIT, PROTOCOL, Refused, TRACE, UNFIT, UNPROVEN,
};
pub use resolver::{HOSTS, RESOLVER, RESOLVER_ADDRESS};
pub use rules::{
    NAME_BYTES_MAX, NoRule, POLICY_BYTES_MAX, Place, Policy, RULE_BYTES_MAX, RULES_MAX, Rule, To,
    Verdict, host,
};
