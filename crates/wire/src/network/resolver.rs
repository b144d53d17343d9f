//! The DNS resolver of a sandbox, and the files that configure it.

use std::net::Ipv4Addr;

/// `/etc/hosts` of a sandbox. It contains the sandbox's own host name so that no lookup for it
/// leaves the sandbox.
pub const HOSTS: &str =
    "127.0.0.1\tlocalhost\n127.0.1.1\tsandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n";
/// `/etc/resolv.conf` of a sandbox, which names [`RESOLVER_ADDRESS`] whatever the address range.
/// Without a veth pair the resolver is unreachable, and a lookup fails at once.
pub const RESOLVER: &str = "nameserver 10.231.0.1\n";
/// The address on which the resolver of every veth pair listens.
pub const RESOLVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 1);
