//! Changes to the network policy of a running sandbox.

use crate::model::error::Error;
use crate::model::network::injected_credential::{CredentialRemoval, CredentialSpec};
use crate::model::network::{ALL, Network, bounded, checked};
use isolet_wire::network::{CLOSED, NetworkDenial, RULES_MAX, UNFIT, UNPROVEN};

/// A change of a network policy. Fields that are `None` or empty change nothing. A change is
/// idempotent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkChange {
    /// A new network policy, to which the other fields are then applied.
    pub whole: Option<Network>,
    /// Rules to add to `allow`.
    pub allow_add: Vec<Opening>,
    /// Rules to remove from `allow`.
    pub allow_remove: Vec<String>,
    /// Rules to add to `deny`.
    pub deny_add: Vec<String>,
    /// Rules to remove from `deny`.
    pub deny_remove: Vec<String>,
    /// Credentials to inject. Each replaces the one for the same host, header and placeholder.
    pub add_credentials: Vec<CredentialSpec>,
    /// Credentials to remove, before the new ones are added.
    pub remove_credentials: Vec<CredentialRemoval>,
}

/// A destination to allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// An egress rule that cannot be parsed.
    Rule(String),
    /// A reported denial whose destination is to be allowed.
    Denied(NetworkDenial),
}

/// The rule that denials report for the addresses of this machine.
const HOST: &str = "host";

impl Opening {
    /// The rule that allows the destination despite these `deny` rules.
    fn rule(&self, deny: &[String]) -> Result<String, Error> {
        let denied = match self {
            Self::Rule(rule) => return Ok(rule.clone()),
            Self::Denied(denied) => denied,
        };
        let host = &denied.host;
        let rule_text = denied.rule.as_str();
        let unfit = UNFIT.iter().find(|(word, _)| *word == rule_text);
        let unproven = UNPROVEN.iter().find(|(word, _)| *word == rule_text);
        let closed = rule_text == HOST || CLOSED.iter().any(|(_, _, word)| *word == rule_text);
        let reason = if deny.iter().any(|rule| rule == rule_text) {
            format!("{host} is refused by {rule_text:?} of deny: take that away with deny_remove")
        } else if closed {
            format!(
                "{host} is closed to every sandbox ({rule_text}): the operator can open it with [network] opened"
            )
        } else if let Some((_, said)) = unproven {
            format!(
                "{host} was refused because {said}: only a rule with the address itself opens that"
            )
        } else if let Some((_, said)) = unfit {
            format!("a request to {host} was refused because {said}: no rule opens that")
        } else {
            return Ok(match denied.port {
                Some(port) if host.contains(':') => format!("[{host}]:{port}"),
                Some(port) => format!("{host}:{port}"),
                None => host.clone(),
            });
        };
        Err(Error::BadField { field: "allow_add", reason })
    }
}

impl Network {
    /// Applies a change to a copy. An error in one part changes nothing.
    pub(crate) fn changed(&self, change: &NetworkChange) -> Result<Self, Error> {
        let base = change.whole.as_ref().unwrap_or(self);
        let mut allow = base.allow.clone();
        let mut deny = base.deny.clone();
        let gone = checked("deny_remove", &change.deny_remove)?;
        deny.retain(|rule| !gone.contains(rule));
        let gone = checked("allow_remove", &change.allow_remove)?;
        allow.retain(|rule| !gone.contains(rule));
        let more: Result<Vec<_>, _> =
            change.allow_add.iter().map(|open| open.rule(&deny)).collect();
        add("allow_add", &mut allow, checked("allow_add", &more?)?)?;
        let more = checked("deny_add", &change.deny_add)?;
        if more.iter().any(|rule| rule == ALL) {
            let reason = "to refuse everything give `network: {}`, which allows nothing".to_owned();
            return Err(Error::BadField { field: "deny_add", reason });
        }
        add("deny_add", &mut deny, more)?;
        bounded("allow_add", &allow, &deny)?;
        // A policy without a network stays so until a rule is added.
        let same = allow == base.allow && deny == base.deny;
        if same { Ok(base.clone()) } else { Network::rules(&allow, &deny) }
    }
}

fn add(field: &'static str, rules: &mut Vec<String>, more: Vec<String>) -> Result<(), Error> {
    for rule in more {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    if rules.len() > RULES_MAX {
        let reason = format!("at most {RULES_MAX} rules");
        return Err(Error::BadField { field, reason });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::network::Mode;

    fn texts(rules: &[&str]) -> Vec<String> {
        rules.iter().map(|rule| (*rule).to_owned()).collect()
    }

    fn denied(host: &str, port: Option<u16>, rule: &str) -> Opening {
        let host = host.to_owned();
        let rule = rule.to_owned();
        Opening::Denied(NetworkDenial { host, port, protocol: "tcp".into(), rule, times: 1 })
    }

    /// Promises: Q13.
    #[test]
    fn what_was_refused_is_opened_as_it_was_told_and_twice_is_as_once() {
        let network = Network::rules(&texts(&["a.example"]), &texts(&["bad.example"])).unwrap();
        let allow_add =
            vec![denied("b.example", Some(443), "default"), denied("c.d", None, "default")];
        let change = NetworkChange { allow_add, ..NetworkChange::default() };
        let once = network.changed(&change).unwrap();
        assert_eq!(once.allow(), ["a.example", "b.example:443", "c.d"]);
        assert_eq!(once.changed(&change).unwrap(), once);
        assert_eq!(Network::none().changed(&change).unwrap().mode(), Mode::Rules);
        let remove = texts(&["b.example:443", "c.d", "never.was"]);
        let change = NetworkChange { allow_remove: remove, ..NetworkChange::default() };
        assert_eq!(once.changed(&change).unwrap(), network);
        assert_eq!(Network::none().changed(&change).unwrap(), Network::none());
    }

    /// Promises: Q13.
    #[test]
    fn what_a_rule_of_deny_or_the_server_closes_is_not_opened_by_allowing_it() {
        let network = Network::rules(&[], &texts(&["bad.example"])).unwrap();
        let reason = |open: Opening| {
            let change = NetworkChange { allow_add: vec![open], ..NetworkChange::default() };
            network.changed(&change).unwrap_err().to_string()
        };
        assert!(reason(denied("bad.example", Some(80), "bad.example")).contains("deny_remove"));
        assert!(reason(denied("10.0.0.1", Some(80), "private")).contains("[network] opened"));
        assert!(reason(denied("203.0.113.1", Some(80), "host")).contains("[network] opened"));
        assert!(reason(denied("a.example", Some(443), "no name")).contains("the address itself"));
        assert!(reason(Opening::Rule("a b".into())).contains("allow_add"));
    }

    /// Promises: Q12.
    #[test]
    fn a_network_is_replaced_and_one_that_is_open_takes_rules() {
        let deny = NetworkChange { deny_add: texts(&["bad.example"]), ..NetworkChange::default() };
        let network = Network::open().changed(&deny).unwrap();
        assert_eq!((network.mode(), network.allow()), (Mode::Rules, &texts(&["*"])[..]));
        let back =
            NetworkChange { deny_remove: texts(&["bad.example"]), ..NetworkChange::default() };
        assert_eq!(network.changed(&back).unwrap(), Network::open());
        let none = NetworkChange { whole: Some(Network::none()), ..NetworkChange::default() };
        assert_eq!(network.changed(&none).unwrap(), Network::none());
        let whole = Some(Network::rules(&[], &[]).unwrap());
        let locked = NetworkChange { whole, ..NetworkChange::default() };
        let locked = Network::open().changed(&locked).unwrap();
        assert_eq!((locked.mode(), locked.allow().len()), (Mode::Rules, 0));
        let many: Vec<String> = (0..=RULES_MAX).map(|n| format!("a{n}.example")).collect();
        let many = NetworkChange { deny_add: many, ..NetworkChange::default() };
        assert!(network.changed(&many).is_err());
        let all = NetworkChange { deny_add: texts(&["*"]), ..NetworkChange::default() };
        assert!(network.changed(&all).is_err(), "it would refuse nothing");
    }
}
