//! Where a sandbox may connect to: rules, what follows from them, and the words between the
//! process that owns links and the edge.
//!
//! A rule is a place, with or without a port. Deny goes before allow; what no rule allows is
//! refused. Some addresses are closed whatever the rules say ([`closed`]): they lead to this
//! machine and its neighbours. Only whoever runs the server opens them.

use crate::lend::Credential;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `/etc/hosts` of a sandbox: itself under its name too, so that nobody asks the world for that.
pub const HOSTS: &str =
    "127.0.0.1\tlocalhost\n127.0.1.1\tsandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n";
/// `/etc/resolv.conf` of a sandbox, whatever addresses sandboxes have: [`RESOLVER_ADDRESS`]. Without
/// a link it is not to be reached, and a lookup fails at once.
pub const RESOLVER: &str = "nameserver 10.231.0.1\n";
/// Where every link's resolver listens.
pub const RESOLVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 1);

/// The longest packet on the edge's control socket.
pub const PACKET_BYTES_MAX: usize = 128 * 1024;
/// Rules of one list.
pub const RULES_MAX: usize = 256;
/// The longest rule, in bytes: a name of a host, with a port.
pub const RULE_BYTES_MAX: usize = 260;
/// All rules of a policy together, in bytes of text: so that it fits into a packet.
pub const POLICY_BYTES_MAX: usize = 48 * 1024;
/// The longest name of a host, in bytes.
pub const NAME_BYTES_MAX: usize = 253;

/// Where a sandbox may connect to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// What is allowed; empty: nothing.
    pub allow: Vec<Rule>,
    /// What is refused, also where a rule of `allow` holds.
    pub deny: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// What it holds for.
    pub place: Place,
    /// For this port alone.
    pub port: Option<u16>,
}

/// What a rule holds for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// `*`: everything.
    Any,
    /// An address, or a network: those whose first `bits` bits are its.
    Net {
        /// Its first address.
        address: IpAddr,
        /// 0 to 32, or to 128 of IPv6.
        bits: u8,
    },
    /// A host by its name, in lower case, without a dot at its end.
    Name(String),
    /// Every name below this one (`*.` and this), not this one.
    Below(String),
}

/// A text that is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no host, address, network or *, with or without :PORT")]
pub struct NoRule;

impl Rule {
    /// Reads a rule: `*`, a host, `*.` and a host, an address, or a network (`10.0.0.0/8`), each
    /// with or without `:PORT`; an IPv6 address with a port stands in brackets.
    ///
    /// # Errors
    /// [`NoRule`]
    pub fn parse(text: &str) -> Result<Self, NoRule> {
        if text.len() > RULE_BYTES_MAX {
            return Err(NoRule);
        }
        if let Some(place) = Place::parse(text) {
            return Ok(Self { place, port: None });
        }
        let (place, port) = text.rsplit_once(':').ok_or(NoRule)?;
        let inner = place.strip_prefix('[').and_then(|place| place.strip_suffix(']'));
        let place = inner.filter(|place| place.contains(':')).unwrap_or(place);
        let port = Some(port)
            .filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|port| port.parse::<u16>().ok())
            .filter(|port| *port > 0)
            .ok_or(NoRule)?;
        let place = Place::parse(place).ok_or(NoRule)?;
        Ok(Self { place, port: Some(port) })
    }

    pub(crate) fn holds(&self, to: &To<'_>) -> bool {
        self.port.is_none_or(|port| Some(port) == to.port) && self.place.holds(to)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.place, self.port) {
            (Place::Net { address: IpAddr::V6(_), .. }, Some(port)) => {
                write!(out, "[{}]:{port}", self.place)
            }
            (place, Some(port)) => write!(out, "{place}:{port}"),
            (place, None) => write!(out, "{place}"),
        }
    }
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Any);
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Net { address, bits: width(address) });
        }
        if let Some((address, bits)) = text.split_once('/') {
            let address = address.parse::<IpAddr>().ok()?;
            let digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
            let bits = bits.parse().ok().filter(|bits| digits && *bits <= width(address))?;
            return Some(Self::Net { address: first(address, bits), bits });
        }
        match text.strip_prefix("*.") {
            Some(below) => Some(Self::Below(host(below)?)),
            None => Some(Self::Name(host(text)?)),
        }
    }

    fn holds(&self, to: &To<'_>) -> bool {
        match self {
            Self::Any => true,
            Self::Net { address, bits } => {
                to.address.is_some_and(|it| within(IpAddr::V4(it), *address, *bits))
            }
            Self::Name(name) => to.name.is_some_and(|it| same(it, name)),
            Self::Below(name) => to.name.is_some_and(|it| below(it, name)),
        }
    }

    /// Whether it can only be judged by who knows the name of the other end.
    #[must_use]
    pub fn is_name(&self) -> bool {
        matches!(self, Self::Name(_) | Self::Below(_))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => out.write_str("*"),
            Self::Net { address, bits } if *bits == width(*address) => write!(out, "{address}"),
            Self::Net { address, bits } => write!(out, "{address}/{bits}"),
            Self::Name(name) => out.write_str(name),
            Self::Below(name) => write!(out, "*.{name}"),
        }
    }
}

/// A name of a host, in lower case and without the dot at its end; `None`: it is none.
#[must_use]
pub fn host(text: &str) -> Option<String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        let letters =
            label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        !label.is_empty()
            && label.len() <= 63
            && letters
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // What ends with a number would be an address, and is none.
    let last = text.rsplit('.').next().unwrap_or_default();
    let good = text.len() <= NAME_BYTES_MAX
        && text.split('.').all(label)
        && !last.bytes().all(|byte| byte.is_ascii_digit());
    good.then(|| text.to_ascii_lowercase())
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(it) => u128::from(it.to_bits()) << 96,
        IpAddr::V6(it) => it.to_bits(),
    }
}

fn mask(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

fn first(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(it) => {
            let keep = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(it.to_bits() & keep))
        }
        IpAddr::V6(it) => IpAddr::V6(Ipv6Addr::from_bits(it.to_bits() & mask(bits))),
    }
}

fn within(it: IpAddr, net: IpAddr, bits: u8) -> bool {
    it.is_ipv4() == net.is_ipv4() && (bits_of(it) ^ bits_of(net)) & mask(bits) == 0
}

fn bare(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

fn same(name: &str, rule: &str) -> bool {
    bare(name).eq_ignore_ascii_case(rule)
}

fn below(name: &str, rule: &str) -> bool {
    let name = bare(name).as_bytes();
    let Some(split) = name.len().checked_sub(rule.len() + 1) else { return false };
    split > 0 && name[split] == b'.' && name[split + 1..].eq_ignore_ascii_case(rule.as_bytes())
}

/// What somebody inside wants to reach, as far as it is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct To<'a> {
    /// The name that was asked for, or that the connection itself says.
    pub name: Option<&'a str>,
    /// The address.
    pub address: Option<Ipv4Addr>,
    /// The port; without one (a name that is looked up) only rules without a port can refuse, and
    /// every rule can allow.
    pub port: Option<u16>,
}

/// What follows from a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// By this rule.
    Allowed(&'a Rule),
    /// By this rule of `deny`; `None`: no rule allows it.
    Refused(Option<&'a Rule>),
}

impl Policy {
    /// Everything that is not [`closed`].
    #[must_use]
    pub fn open() -> Self {
        Self { allow: vec![Rule { place: Place::Any, port: None }], deny: Vec::new() }
    }

    /// Judges one connection, or the lookup of a name.
    #[must_use]
    pub fn judge(&self, to: &To<'_>) -> Verdict<'_> {
        if let Some(rule) = self.deny.iter().find(|rule| rule.holds(to)) {
            return Verdict::Refused(Some(rule));
        }
        let lookup = to.port.is_none();
        let allows = |rule: &&Rule| if lookup { rule.place.holds(to) } else { rule.holds(to) };
        self.allow.iter().find(allows).map_or(Verdict::Refused(None), Verdict::Allowed)
    }

    /// Whether addresses alone are enough to judge.
    #[must_use]
    pub fn by_address(&self) -> bool {
        !self.allow.iter().chain(&self.deny).any(|rule| rule.place.is_name())
    }

    /// Bytes of its rules as text; [`POLICY_BYTES_MAX`] at most.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.allow.iter().chain(&self.deny).map(|rule| rule.to_string().len()).sum()
    }
}

/// Networks that no rule opens, and what they are: they lead to this machine, to its neighbours,
/// or to nobody.
pub const CLOSED: [(Ipv4Addr, u8, &str); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "private"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "metadata"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 52, 193, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(192, 175, 48, 0), 24, "reserved"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "private"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// Why the edge refuses a connection although rules may allow the host that it means, and what that
/// says: no rule with a name opens these.
pub const UNPROVEN: [(&str, &str); 3] = [
    ("no name", "the connection does not say which host it means"),
    ("hidden name", "the connection may hide which host it means"),
    ("other host", "the request is for another host than the connection"),
];
/// Why the edge refuses a request whatever rules say, and what that says.
pub const UNFIT: [(&str, &str); 3] = [
    (BAD_REQUEST, "it is no HTTP request that can be passed on"),
    (TRACE, "TRACE shows what is lent for the host"),
    (HEADERS_TOO_LONG, "its headers are too long with the credentials in place of placeholders"),
];
/// HTTP that two readers may read in two ways, or that asks for a tunnel.
pub const BAD_REQUEST: &str = "bad request";
/// A TRACE, or what servers take for one, to a host that something is lent for.
pub const TRACE: &str = "trace";
/// A request whose placeholders stand for more than a head may have.
pub const HEADERS_TOO_LONG: &str = "headers too long";
/// More at once than one sandbox may have.
pub const LIMIT: &str = "limit";
/// Told as the rule where a host is allowed for TLS and HTTP, and something else was spoken.
pub const PROTOCOL: &str = "protocol";

/// Why an address is closed whatever a sandbox's rules say; the host's own addresses come beside.
#[must_use]
pub fn closed(address: Ipv4Addr) -> Option<&'static str> {
    let it = IpAddr::V4(address);
    CLOSED.iter().find(|(net, bits, _)| within(it, IpAddr::V4(*net), *bits)).map(|found| found.2)
}

/// Which addresses lead out, beyond rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// Addresses of this machine: closed.
    pub host: Vec<Ipv4Addr>,
    /// Networks that whoever runs the server has opened, though they are [`CLOSED`] or the host's.
    pub opened: Vec<(Ipv4Addr, u8)>,
}

impl Guard {
    /// Why an address is closed; `None`: rules decide.
    #[must_use]
    pub fn closed(&self, address: Ipv4Addr) -> Option<&'static str> {
        let it = IpAddr::V4(address);
        if self.opened.iter().any(|(net, bits)| within(it, IpAddr::V4(*net), *bits)) {
            return None;
        }
        if self.host.contains(&address) { Some("host") } else { closed(address) }
    }
}

/// A connection, a packet or a lookup that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The name, where one is known, else the address.
    pub host: String,
    /// The port; `None` of a name that was looked up, and of protocols without ports.
    pub port: Option<u16>,
    /// `tcp`, `udp`, `icmp`, `dns`, or a number of IP's.
    pub protocol: String,
    /// The rule of `deny`; `default`: no rule allows it; else why it is closed: `host`,
    /// `private`, `metadata`, …
    pub rule: String,
    /// How often since it was last told; equal ones that come close together are told once.
    pub times: u32,
}

/// What the edge is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EdgeOrder {
    /// First of all, and when the machine's addresses change.
    Guard {
        /// What is closed.
        guard: Guard,
        /// Who is asked for names; the host's own resolvers when empty.
        resolvers: Vec<SocketAddr>,
    },
    /// The rules of the link with this address, from now on; what they forbid and runs is cut.
    Set {
        /// Who speaks from there.
        address: Ipv4Addr,
        /// Its rules.
        policy: Policy,
    },
    /// What is lent to the link, from now on, in place of what was.
    Lend {
        /// Its address; its rules have been set.
        address: Ipv4Addr,
        /// All that it has.
        credentials: Vec<Credential>,
        /// Also within TLS, by an authority of its own: answered with [`EdgeTell::Authority`].
        tls: bool,
    },
    /// The link is gone; what runs is cut.
    Forget {
        /// Its address.
        address: Ipv4Addr,
    },
    /// To be answered with [`EdgeTell::Settled`] once all refusals until now are told.
    Settle {
        /// Comes back with the answer.
        number: u64,
    },
}

/// What the edge says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EdgeTell {
    /// It listens.
    Ready,
    /// Somebody was refused.
    Refused {
        /// The link's address.
        address: Ipv4Addr,
        /// What.
        refused: Refused,
    },
    /// Whom the sandbox is to trust, so that credentials reach hosts within TLS. The key stays
    /// with the edge, and is gone with it: then there is another.
    Authority {
        /// The link's address.
        address: Ipv4Addr,
        /// The certificate, as PEM.
        certificate: String,
    },
    /// Everything before is told.
    Settled {
        /// Of the order.
        number: u64,
    },
    /// Bytes that connections of a link carried since it was last said; about once a second.
    Carried {
        /// The link's address.
        address: Ipv4Addr,
        /// From the sandbox.
        out: u64,
        /// To the sandbox.
        back: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| Rule::parse(text).expect(text)).collect()
    }

    fn to<'a>(name: Option<&'a str>, address: [u8; 4], port: u16) -> To<'a> {
        To { name, address: Some(address.into()), port: Some(port) }
    }

    #[test]
    fn a_rule_is_a_place_with_or_without_a_port_and_says_itself() {
        for good in [
            "*",
            "*:443",
            "example.com",
            "*.example.com:8443",
            "xn--bcher-kva.example",
            "localhost",
            "10.0.0.0/8",
            "192.168.1.1:80",
            "::1",
            "fd00::/8",
            "[::1]:443",
            "[fd00::/8]:443",
        ] {
            assert_eq!(Rule::parse(good).expect(good).to_string(), good);
        }
        assert_eq!(Rule::parse("EXAMPLE.com.:80").expect("a rule").to_string(), "example.com:80");
        assert_eq!(Rule::parse("10.1.2.3/8").expect("a rule").to_string(), "10.0.0.0/8");
        let long = "a.".repeat(200);
        for bad in [
            "",
            " ",
            "a b",
            "http://a",
            "a/b",
            "*a.com",
            "a.*",
            "-a.com",
            "a..b",
            "a:0",
            "a:70000",
            "a:+1",
            "300.1.1.1",
            "10.0.0.0/33",
            "10.0.0.0/",
            "a\n",
            "ä.com",
            "[a]:1",
            "a.1",
            &long,
        ] {
            assert_eq!(Rule::parse(bad), Err(NoRule), "{bad:?}");
        }
    }

    #[test]
    fn deny_goes_before_allow_and_what_no_rule_allows_is_refused() {
        let policy = Policy {
            allow: rules(&["*.example.com", "93.184.0.0/16:443", "git.example.net:22"]),
            deny: rules(&["bad.example.com", "93.184.216.34"]),
        };
        let allowed = |to: To<'_>| matches!(policy.judge(&to), Verdict::Allowed(_));
        assert!(allowed(to(Some("www.EXAMPLE.com."), [1, 2, 3, 4], 80)));
        assert!(!allowed(to(Some("example.com"), [1, 2, 3, 4], 80)));
        assert!(!allowed(to(Some("wwwexample.com"), [1, 2, 3, 4], 80)));
        assert!(!allowed(to(Some("bad.example.com"), [1, 2, 3, 4], 80)));
        assert!(allowed(to(None, [93, 184, 1, 1], 443)));
        assert!(!allowed(to(None, [93, 184, 1, 1], 80)));
        assert!(!allowed(to(Some("www.example.com"), [93, 184, 216, 34], 443)));
        assert!(allowed(to(Some("git.example.net"), [1, 1, 1, 1], 22)));
        assert!(!allowed(to(Some("git.example.net"), [1, 1, 1, 1], 443)));
        let lookup = To { name: Some("git.example.net"), ..To::default() };
        assert!(allowed(lookup), "a name that is allowed for one port can be looked up");
        assert_eq!(policy.judge(&to(None, [9, 9, 9, 9], 53)), Verdict::Refused(None));
    }

    #[test]
    fn the_ways_to_this_machine_and_its_neighbours_are_closed() {
        for (address, why) in [
            ([10, 1, 2, 3], Some("private")),
            ([127, 0, 0, 1], Some("loopback")),
            ([169, 254, 169, 254], Some("link-local")),
            ([0, 0, 0, 0], Some("this network")),
            ([172, 31, 255, 255], Some("private")),
            ([172, 32, 0, 0], None),
            ([192, 168, 1, 1], Some("private")),
            ([255, 255, 255, 255], Some("reserved")),
            ([239, 1, 1, 1], Some("multicast")),
            ([8, 8, 8, 8], None),
        ] {
            assert_eq!(closed(address.into()), why, "{address:?}");
        }
        let guard =
            Guard { host: vec![[8, 8, 4, 4].into()], opened: vec![([10, 1, 0, 0].into(), 16)] };
        assert_eq!(guard.closed([8, 8, 4, 4].into()), Some("host"));
        assert_eq!(guard.closed([10, 1, 9, 9].into()), None);
        assert_eq!(guard.closed([10, 2, 9, 9].into()), Some("private"));
    }

    #[test]
    fn names_need_somebody_who_knows_them() {
        assert!(Policy::open().by_address());
        let named = Policy { deny: rules(&["a.example"]), ..Policy::open() };
        assert!(!named.by_address());
    }
}
