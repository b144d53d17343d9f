//! The rules of the kernel's packet filter as `nft` reads them. Pure: from what is to hold, text.
//!
//! Everything between a sandbox and the world is judged in the namespace between them, packet by
//! packet, against sets whose elements name a link: a change of rules holds for what runs too.
//! There the answer is no unless an element says yes. The host's own table only gives packets the
//! host's address, and keeps what comes from sandboxes away from the host once more.

use super::netlink::nflog::{LIMIT_PREFIX, LOG_GROUP};
use super::policy::{Allowed, CARRIER_PORT, HOST_END, Mode, Range, UPLINK, allowed, mode, name};
use super::set_element::{Element, Part};
use isolet_wire::network::{CLOSED, Guard, Policy, RESOLVER_ADDRESS};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// What holds for one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    id: u32,
    address: Ipv4Addr,
    mode: Mode,
    allowed: Vec<Allowed>,
    /// Only who knows names may let TCP through: names are denied, or something is put into requests.
    named: bool,
}

impl Kept {
    /// `lent`: it is lent credentials, so that all its TCP is to come to the edge.
    pub(crate) fn of(range: Range, id: u32, policy: &Policy, lent: bool) -> Self {
        let mode = mode(policy);
        let by_address = matches!(mode, Mode::Addresses | Mode::Names);
        let allowed = if by_address { allowed(policy) } else { Vec::new() };
        let named = lent || policy.deny.iter().any(|rule| rule.place.is_name());
        Self { id, address: range.address(id), mode, allowed, named }
    }

    /// Its elements.
    pub(crate) fn elements(&self) -> BTreeSet<Element> {
        let link = || Part::Link(name(self.id));
        let own = Part::Addresses(self.address, self.address);
        let mut all = BTreeSet::from([Element::new("addresses", [link(), own])]);
        match self.mode {
            Mode::Closed | Mode::Addresses | Mode::Names => {}
            Mode::Open => drop(all.insert(Element::new("open", [link()]))),
        }
        let judged = self.mode == Mode::Names || (self.named && self.mode != Mode::Closed);
        if judged {
            all.insert(Element::new("proxied", [link()]));
        }
        let (tcp, udp) = (Part::Protocol("tcp", 6), Part::Protocol("udp", 17));
        let protocols = if self.named { vec![udp] } else { vec![tcp, udp] };
        for range in &self.allowed {
            let place = || Part::Addresses(range.first, range.last);
            for (first, last) in &range.ports {
                let ports = Part::Ports(*first, *last);
                all.extend(protocols.iter().map(|it| {
                    Element::new("direct", [link(), place(), it.clone(), ports.clone()])
                }));
            }
            if range.all() {
                all.insert(Element::new("echo", [link(), place()]));
            }
        }
        all
    }
}

/// The change from some elements to others; empty when there is none.
pub(crate) fn change(was: &BTreeSet<Element>, is: &BTreeSet<Element>) -> String {
    let mut text = String::new();
    for (word, elements) in [("delete", was.difference(is)), ("add", is.difference(was))] {
        let mut lists: std::collections::BTreeMap<&str, Vec<String>> = Default::default();
        for element in elements {
            lists.entry(element.set).or_default().push(element.to_string());
        }
        for (set, list) in lists {
            let _ = writeln!(text, "{word} element inet isolet {set} {{ {} }}", list.join(", "));
        }
    }
    text
}

fn list<T: std::fmt::Display>(all: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = all.into_iter().map(|one| one.to_string()).collect();
    if all.is_empty() { String::new() } else { format!("elements = {{ {} }}", all.join(", ")) }
}

fn net((first, bits): &(Ipv4Addr, u8)) -> String {
    format!("{first}/{bits}")
}

/// The change of what is closed: the host's addresses.
pub(crate) fn guard(guard: &Guard) -> String {
    let mut text = "flush set inet isolet host\n".to_owned();
    if !guard.host.is_empty() {
        let all: Vec<String> = guard.host.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "add element inet isolet host {{ {} }}", all.join(", "));
    }
    text
}

/// The table of the namespace between, whole; an earlier one goes in the same instant.
pub(crate) fn table(
    (range, tracked_max): (Range, u32),
    kept: &BTreeSet<Element>,
    guard: &Guard,
) -> String {
    let gateway = range.gateway();
    let of = |set: &str| list(kept.iter().filter(|element| element.set == set));
    let (addresses, open, proxied) = (of("addresses"), of("open"), of("proxied"));
    let (direct, echo) = (of("direct"), of("echo"));
    let closed = list(CLOSED.iter().map(|(first, bits, _)| net(&(*first, *bits))));
    let (host, opened) = (list(&guard.host), list(guard.opened.iter().map(net)));
    let range = net(&range.net());
    format!(
        r#"table inet isolet
delete table inet isolet
table inet isolet {{
  set addresses {{ typeof iifname . ip saddr; {addresses} }}
  set open {{ type ifname; {open} }}
  set proxied {{ type ifname; {proxied} }}
  set direct {{ type ifname . ipv4_addr . inet_proto . inet_service; flags interval; {direct} }}
  set echo {{ type ifname . ipv4_addr; flags interval; {echo} }}
  set closed {{ type ipv4_addr; flags interval; auto-merge; {closed} }}
  set opened {{ type ipv4_addr; flags interval; auto-merge; {opened} }}
  set host {{ type ipv4_addr; {host} }}
  set noise {{ type ifname; size 65536; flags dynamic,timeout; timeout 1m; }}
  set tracked {{ type ipv4_addr; size 65536; flags dynamic; }}
  chain answer {{
    meta l4proto tcp reject with tcp reset
    reject with icmp type admin-prohibited
  }}
  chain refuse {{
    update @noise {{ iifname limit rate 50/second burst 100 packets }} log group {LOG_GROUP} snaplen 64 queue-threshold 1
    goto answer
  }}
  chain crowded {{
    update @noise {{ iifname limit rate 50/second burst 100 packets }} log prefix "{LIMIT_PREFIX}" group {LOG_GROUP} snaplen 64 queue-threshold 1
    goto answer
  }}
  chain counted {{
    ct state new add @tracked {{ ip saddr ct count over {tracked_max} }} goto crowded
    accept
  }}
  chain judged {{
    iifname @open meta l4proto {{ tcp, udp }} goto counted
    iifname @open icmp type echo-request goto counted
    meta l4proto {{ tcp, udp }} iifname . ip daddr . meta l4proto . th dport @direct goto counted
    icmp type echo-request iifname . ip daddr @echo goto counted
    goto refuse
  }}
  chain outbound {{
    ip daddr {range} goto refuse
    ip daddr @opened goto judged
    ip daddr @closed goto refuse
    ip daddr @host goto refuse
    goto judged
  }}
  chain inbound {{
    ct state != {{ established, related }} drop
    oifname @open accept
    # What is answered to it is judged, and refused with the number that it is at: were it dropped
    # here, who waits for more would never hear of an end.
    meta l4proto tcp ct state established accept
    meta l4proto udp oifname . ip saddr . meta l4proto . th sport @direct accept
    icmp type echo-reply oifname . ip saddr @echo accept
    ct state related icmp type {{ destination-unreachable, time-exceeded }} accept
  }}
  chain forward {{
    type filter hook forward priority filter; policy drop;
    meta nfproto != ipv4 drop
    iifname "{UPLINK}" goto inbound
    iifname . ip saddr @addresses oifname "{UPLINK}" goto outbound
    iifname . ip saddr @addresses goto refuse
  }}
  chain gateway {{
    ip daddr {RESOLVER_ADDRESS} meta l4proto {{ tcp, udp }} th dport 53 goto counted
    iifname @proxied tcp dport {CARRIER_PORT} ct status dnat goto counted
    goto refuse
  }}
  chain input {{
    type filter hook input priority filter; policy drop;
    meta nfproto != ipv4 drop
    iifname . ip saddr @addresses goto gateway
  }}
  chain output {{
    type filter hook output priority filter; policy drop;
    oifname "{UPLINK}" drop
    ct state {{ established, related }} accept
    tcp flags rst accept
    icmp type destination-unreachable accept
  }}
  chain divert {{
    type nat hook prerouting priority dstnat; policy accept;
    iifname != @proxied return
    meta l4proto != tcp return
    iifname . ip saddr != @addresses return
    ip daddr {range} return
    ip daddr {RESOLVER_ADDRESS} return
    ip daddr @opened goto carried
    ip daddr @closed return
    ip daddr @host return
    goto carried
  }}
  chain carried {{
    meta l4proto tcp iifname . ip daddr . meta l4proto . th dport @direct return
    meta l4proto tcp dnat ip to {gateway}:{CARRIER_PORT}
  }}
}}
"#
    )
}

/// The host's table, whole.
pub(crate) fn host(range: Range) -> String {
    let range = net(&range.net());
    format!(
        r#"table ip isolet
delete table ip isolet
table ip isolet {{
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname "{HOST_END}" drop
    ip saddr {range} drop
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname "{HOST_END}" ip saddr != {range} drop
    iifname != "{HOST_END}" ip saddr {range} drop
    oifname "{HOST_END}" ct state != {{ established, related }} drop
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {range} oifname != "{HOST_END}" masquerade
  }}
}}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_wire::network::Rule;

    fn range() -> Range {
        Range::new(Ipv4Addr::new(10, 231, 0, 0))
    }

    fn texts(elements: &BTreeSet<Element>) -> Vec<(&'static str, String)> {
        elements.iter().map(|element| (element.set, element.to_string())).collect()
    }

    fn kept(id: u32, allow: &[&str], deny: &[&str]) -> BTreeSet<Element> {
        let rules =
            |texts: &[&str]| texts.iter().map(|text| Rule::parse(text).expect(text)).collect();
        let policy = Policy { allow: rules(allow), deny: rules(deny) };
        Kept::of(range(), id, &policy, false).elements()
    }

    fn lent(allow: &[&str]) -> Vec<(&'static str, String)> {
        let allow = allow.iter().map(|text| Rule::parse(text).expect(text)).collect();
        texts(&Kept::of(range(), 300, &Policy { allow, deny: Vec::new() }, true).elements())
    }

    #[test]
    fn what_is_lent_credentials_is_led_to_who_puts_them_in() {
        let proxied = ("proxied", "l300".to_owned());
        for allow in [&["*"][..], &["1.2.3.4"], &["a.example"]] {
            let some = lent(allow);
            assert!(some.contains(&proxied), "{allow:?}: {some:?}");
            assert!(some.iter().all(|(_, element)| !element.contains("tcp")), "{some:?}");
        }
        assert!(lent(&["*"]).contains(&("open", "l300".to_owned())), "the rest as it was");
        assert!(lent(&["1.2.3.4"]).iter().any(|(_, element)| element.contains("udp")));
        assert!(!lent(&[]).contains(&proxied), "nothing is allowed");
    }

    #[test]
    fn a_link_that_may_nothing_has_its_address_alone() {
        let closed = kept(300, &[], &[]);
        assert_eq!(texts(&closed), [("addresses", "l300 . 10.231.1.44".to_owned())]);
    }

    #[test]
    fn a_change_takes_away_before_it_adds_and_nothing_changes_nothing() {
        let (open, closed) = (kept(300, &["*"], &[]), kept(300, &[], &[]));
        assert_eq!(change(&closed, &open), "add element inet isolet open { l300 }\n");
        assert_eq!(change(&open, &closed), "delete element inet isolet open { l300 }\n");
        assert_eq!(change(&open, &open), "");
        let (one, two) = (kept(300, &["1.2.3.4:80"], &[]), kept(300, &["1.2.3.0/24:80"], &[]));
        let text = change(&one, &two);
        let (gone, came) = (text.find("delete").expect("gone"), text.find("add").expect("came"));
        assert!(gone < came, "{text}");
        assert!(text.contains("l300 . 1.2.3.0-1.2.3.255 . udp . 80"), "{text}");
    }

    #[test]
    fn pings_go_where_everything_may() {
        let some = kept(300, &["1.2.3.4:80", "5.0.0.0/8"], &[]);
        let echo: Vec<_> = texts(&some).into_iter().filter(|(set, _)| *set == "echo").collect();
        assert_eq!(echo, [("echo", "l300 . 5.0.0.0-5.255.255.255".to_owned())]);
    }

    #[test]
    fn a_denied_name_keeps_tcp_with_who_knows_names() {
        let some = kept(300, &["1.2.3.4"], &["example.com"]);
        let some = texts(&some);
        assert!(some.contains(&("proxied", "l300".to_owned())));
        assert!(some.iter().all(|(_, element)| !element.contains("tcp")), "{some:?}");
    }

    #[test]
    fn the_table_holds_what_is_kept_and_what_is_closed() {
        let guard =
            Guard { host: vec![[9, 9, 9, 9].into()], opened: vec![([10, 1, 0, 0].into(), 16)] };
        let text = table((range(), 4096), &kept(300, &["*"], &[]), &guard);
        for part in [
            "{ l300 . 10.231.1.44 }",
            "169.254.0.0/16",
            "{ 9.9.9.9 }",
            "{ 10.1.0.0/16 }",
            "{ l300 }",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(text.starts_with("table inet isolet\ndelete table inet isolet\n"));
    }
}
