//! The network policy of a sandbox: its egress `rules`, the `addresses` that are always closed, and
//! the messages between the process that owns the veth pairs and the egress proxy.
//!
//! A rule is a host, an address or a network, with or without a port. A deny rule wins over an
//! allow rule, and a destination without a rule is denied. Some addresses are closed whatever the
//! rules say ([`closed`]), because they lead to this machine and its neighbours. Only the operator
//! can open them.

mod addresses;
mod egress_proxy;
mod refusal;
mod resolver;
mod rules;

pub use addresses::{CLOSED, Guard, closed};
pub use egress_proxy::{PACKET_BYTES_MAX, ProxyRequest, ProxyResponse};
pub use refusal::{
    BAD_REQUEST, HEADERS_TOO_LONG, LIMIT, NetworkDenial, PROTOCOL, TRACE, UNFIT, UNPROVEN,
};
pub use resolver::{HOSTS, RESOLVER, RESOLVER_ADDRESS};
pub use rules::{
    BadRule, NAME_BYTES_MAX, NetworkDestination, POLICY_BYTES_MAX, Policy, RULE_BYTES_MAX,
    RULES_MAX, Rule, RuleTarget, Verdict, host,
};
