//! The resolver of a sandbox, and the files that name it.

use std::net::Ipv4Addr;

/// `/etc/hosts` of a sandbox: itself under its name too, so that nobody asks the world for that.
pub const HOSTS: &str =
    "127.0.0.1\tlocalhost\n127.0.1.1\tsandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n";
/// `/etc/resolv.conf` of a sandbox, whatever addresses sandboxes have: [`RESOLVER_ADDRESS`]. Without
/// a link it is not to be reached, and a lookup fails at once.
pub const RESOLVER: &str = "nameserver 10.231.0.1\n";
/// Where every link's resolver listens.
pub const RESOLVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 1);
