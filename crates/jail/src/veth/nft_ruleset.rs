//! The rules of the kernel's packet filter in the language of `nft`. Pure.
//!
//! The gateway's table checks every packet between a sandbox and the world against sets whose
//! elements name a pair, so a change of rules also applies to open connections. A packet that no
//! element allows is denied. The host's own table only gives packets the host's address, and blocks
//! packets from sandboxes to the host a second time.

use super::addresses::{AddressRange, GATEWAY_UPLINK, HOST_UPLINK, PROXY_PORT, interface_name};
use super::netlink::nflog::{LIMIT_PREFIX, LOG_GROUP};
use super::policy::{AllowedRange, PolicyMode, allowed_ranges, policy_mode};
use super::set_element::{Element, Part};
use isolet_wire::network::{CLOSED, Guard, Policy, RESOLVER_ADDRESS};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};
use std::net::Ipv4Addr;

/// The rules of one pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VethRules {
    id: u32,
    address: Ipv4Addr,
    mode: PolicyMode,
    allowed: Vec<AllowedRange>,
    /// All TCP goes through the egress proxy: names are denied, or credentials are injected.
    proxy_all_tcp: bool,
}

impl VethRules {
    pub(super) fn new(
        range: AddressRange,
        id: u32,
        policy: &Policy,
        injects_credentials: bool,
    ) -> Self {
        let mode = policy_mode(policy);
        let by_address = matches!(mode, PolicyMode::Addresses | PolicyMode::Names);
        let allowed = if by_address { allowed_ranges(policy) } else { Vec::new() };
        let denies_names = policy.deny.iter().any(|rule| rule.place.is_name());
        let proxy_all_tcp = injects_credentials || denies_names;
        Self { id, address: range.address(id), mode, allowed, proxy_all_tcp }
    }

    pub(super) fn elements(&self) -> BTreeSet<Element> {
        let interface = || Part::Interface(interface_name(self.id));
        let address = Part::Addresses(self.address, self.address);
        let mut all = BTreeSet::from([Element::new("addresses", [interface(), address])]);
        if self.mode == PolicyMode::Open {
            all.insert(Element::new("open", [interface()]));
        }
        let is_closed = self.mode == PolicyMode::Closed;
        if self.mode == PolicyMode::Names || (self.proxy_all_tcp && !is_closed) {
            all.insert(Element::new("proxied", [interface()]));
        }
        let tcp = Part::Protocol("tcp", libc::IPPROTO_TCP as u8);
        let udp = Part::Protocol("udp", libc::IPPROTO_UDP as u8);
        let protocols = if self.proxy_all_tcp { vec![udp] } else { vec![tcp, udp] };
        for range in &self.allowed {
            let addresses = || Part::Addresses(range.first, range.last);
            for (first, last) in &range.ports {
                let ports = Part::Ports(*first, *last);
                all.extend(protocols.iter().map(|protocol| {
                    Element::new(
                        "direct",
                        [interface(), addresses(), protocol.clone(), ports.clone()],
                    )
                }));
            }
            if range.all_ports() {
                all.insert(Element::new("echo", [interface(), addresses()]));
            }
        }
        all
    }
}

/// The commands that change the elements from `before` to `after`; empty when they are equal.
pub(super) fn change_elements(before: &BTreeSet<Element>, after: &BTreeSet<Element>) -> String {
    let mut text = String::new();
    let changes = [("delete", before.difference(after)), ("add", after.difference(before))];
    for (command, elements) in changes {
        let mut lists: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for element in elements {
            lists.entry(element.set).or_default().push(element.to_string());
        }
        for (set, list) in lists {
            let _ = writeln!(text, "{command} element inet isolet {set} {{ {} }}", list.join(", "));
        }
    }
    text
}

/// `elements = { … }`, or an empty text.
fn elements_clause<T: Display>(all: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = all.into_iter().map(|one| one.to_string()).collect();
    if all.is_empty() { String::new() } else { format!("elements = {{ {} }}", all.join(", ")) }
}

fn cidr(network: &(Ipv4Addr, u8)) -> String {
    format!("{}/{}", network.0, network.1)
}

/// The commands that replace the set of the host's addresses, which are always closed.
pub(super) fn replace_host_addresses(guard: &Guard) -> String {
    let mut text = "flush set inet isolet host\n".to_owned();
    if !guard.host.is_empty() {
        let all: Vec<String> = guard.host.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "add element inet isolet host {{ {} }}", all.join(", "));
    }
    text
}

/// The gateway's whole table, which replaces an earlier one in the same transaction.
pub(super) fn gateway_table(
    range: AddressRange,
    connections_max: u32,
    elements: &BTreeSet<Element>,
    guard: &Guard,
) -> String {
    let gateway = range.gateway();
    let of = |set: &str| elements_clause(elements.iter().filter(|element| element.set == set));
    let addresses = of("addresses");
    let open = of("open");
    let proxied = of("proxied");
    let direct = of("direct");
    let echo = of("echo");
    let closed = elements_clause(CLOSED.iter().map(|(first, bits, _)| cidr(&(*first, *bits))));
    let host = elements_clause(&guard.host);
    let opened = elements_clause(guard.opened.iter().map(cidr));
    let range = cidr(&range.network());
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
    ct state new add @tracked {{ ip saddr ct count over {connections_max} }} goto crowded
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
    iifname "{GATEWAY_UPLINK}" goto inbound
    iifname . ip saddr @addresses oifname "{GATEWAY_UPLINK}" goto outbound
    iifname . ip saddr @addresses goto refuse
  }}
  chain gateway {{
    ip daddr {RESOLVER_ADDRESS} meta l4proto {{ tcp, udp }} th dport 53 goto counted
    iifname @proxied tcp dport {PROXY_PORT} ct status dnat goto counted
    goto refuse
  }}
  chain input {{
    type filter hook input priority filter; policy drop;
    meta nfproto != ipv4 drop
    iifname . ip saddr @addresses goto gateway
  }}
  chain output {{
    type filter hook output priority filter; policy drop;
    oifname "{GATEWAY_UPLINK}" drop
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
    meta l4proto tcp dnat ip to {gateway}:{PROXY_PORT}
  }}
}}
"#
    )
}

/// The host's whole table.
pub(super) fn host_table(range: AddressRange) -> String {
    let range = cidr(&range.network());
    format!(
        r#"table ip isolet
delete table ip isolet
table ip isolet {{
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname "{HOST_UPLINK}" drop
    ip saddr {range} drop
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname "{HOST_UPLINK}" ip saddr != {range} drop
    iifname != "{HOST_UPLINK}" ip saddr {range} drop
    oifname "{HOST_UPLINK}" ct state != {{ established, related }} drop
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {range} oifname != "{HOST_UPLINK}" masquerade
  }}
}}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_wire::network::Rule;

    fn range() -> AddressRange {
        AddressRange::new(Ipv4Addr::new(10, 231, 0, 0))
    }

    fn texts(elements: &BTreeSet<Element>) -> Vec<(&'static str, String)> {
        elements.iter().map(|element| (element.set, element.to_string())).collect()
    }

    fn elements(id: u32, allow: &[&str], deny: &[&str]) -> BTreeSet<Element> {
        let rules =
            |texts: &[&str]| texts.iter().map(|text| Rule::parse(text).expect(text)).collect();
        let policy = Policy { allow: rules(allow), deny: rules(deny) };
        VethRules::new(range(), id, &policy, false).elements()
    }

    fn with_credentials(allow: &[&str]) -> Vec<(&'static str, String)> {
        let allow = allow.iter().map(|text| Rule::parse(text).expect(text)).collect();
        texts(&VethRules::new(range(), 300, &Policy { allow, deny: Vec::new() }, true).elements())
    }

    /// Promises: Q22.
    #[test]
    fn a_pair_with_credentials_has_all_its_tcp_proxied() {
        let proxied = ("proxied", "l300".to_owned());
        for allow in [&["*"][..], &["1.2.3.4"], &["a.example"]] {
            let some = with_credentials(allow);
            assert!(some.contains(&proxied), "{allow:?}: {some:?}");
            assert!(some.iter().all(|(_, element)| !element.contains("tcp")), "{some:?}");
        }
        assert!(
            with_credentials(&["*"]).contains(&("open", "l300".to_owned())),
            "the rest as it was"
        );
        assert!(with_credentials(&["1.2.3.4"]).iter().any(|(_, element)| element.contains("udp")));
        assert!(!with_credentials(&[]).contains(&proxied), "nothing is allowed");
    }

    #[test]
    fn a_pair_without_rules_has_its_address_alone() {
        let closed = elements(300, &[], &[]);
        assert_eq!(texts(&closed), [("addresses", "l300 . 10.231.1.44".to_owned())]);
    }

    #[test]
    fn a_change_deletes_before_it_adds_and_equal_elements_change_nothing() {
        let open = elements(300, &["*"], &[]);
        let closed = elements(300, &[], &[]);
        assert_eq!(change_elements(&closed, &open), "add element inet isolet open { l300 }\n");
        assert_eq!(change_elements(&open, &closed), "delete element inet isolet open { l300 }\n");
        assert_eq!(change_elements(&open, &open), "");
        let one = elements(300, &["1.2.3.4:80"], &[]);
        let two = elements(300, &["1.2.3.0/24:80"], &[]);
        let text = change_elements(&one, &two);
        let deleted = text.find("delete").expect("deletes");
        let added = text.find("add").expect("adds");
        assert!(deleted < added, "{text}");
        assert!(text.contains("l300 . 1.2.3.0-1.2.3.255 . udp . 80"), "{text}");
    }

    #[test]
    fn pings_are_allowed_where_all_ports_are() {
        let some = elements(300, &["1.2.3.4:80", "5.0.0.0/8"], &[]);
        let echo: Vec<_> = texts(&some).into_iter().filter(|(set, _)| *set == "echo").collect();
        assert_eq!(echo, [("echo", "l300 . 5.0.0.0-5.255.255.255".to_owned())]);
    }

    #[test]
    fn a_denied_name_has_all_tcp_proxied() {
        let some = elements(300, &["1.2.3.4"], &["example.com"]);
        let some = texts(&some);
        assert!(some.contains(&("proxied", "l300".to_owned())));
        assert!(some.iter().all(|(_, element)| !element.contains("tcp")), "{some:?}");
    }

    #[test]
    fn the_table_holds_the_elements_and_the_closed_addresses() {
        let guard =
            Guard { host: vec![[9, 9, 9, 9].into()], opened: vec![([10, 1, 0, 0].into(), 16)] };
        let text = gateway_table(range(), 4096, &elements(300, &["*"], &[]), &guard);
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
