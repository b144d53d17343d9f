//! A [`World`] whose internet has DNS names, web servers with TLS under them, and a record of
//! everything that arrived there, counted by the kernel.

use crate::data_directory::test_directory;
use crate::net::{METADATA, OTHER, PRIVATE, PUBLIC, World, ip, run};
use crate::{SOON, Value, json, wait_until};
use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const INTERNET: &str = include_str!("internet.py");
/// The address of a third public host.
pub const THIRD: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 30);
/// An IPv6 address, which only clients with IPv6 reach.
pub const SIX: &str = "2001:db8:1::10";

/// A [`World`] with DNS and web servers; dropping it removes it.
#[derive(Debug)]
pub struct Internet {
    /// The network namespaces that everything runs in.
    pub world: World,
    folder: TempDir,
}

impl Internet {
    /// Creates one with these names: each has a list of addresses, or a list of such lists, one for
    /// each query.
    ///
    /// # Panics
    /// When a part cannot be created.
    #[must_use]
    pub fn new(zone: &Value) -> Self {
        let folder = test_directory("internet");
        let at = folder.path().display().to_string();
        fs::create_dir(folder.path().join("www")).expect("a directory");
        certificates(folder.path(), zone);
        fs::write(folder.path().join("zone.json"), zone.to_string()).expect("writes");
        let addresses = [PUBLIC, OTHER, THIRD, PRIVATE, METADATA].map(|it| it.to_string());
        let mut words = vec![at.as_str()];
        words.extend(addresses.iter().map(String::as_str));
        let world = World::running(INTERNET, &words);
        world.there(&format!("ip addr add {THIRD}/32 dev eth0"));
        ip(&format!("route add {THIRD} dev wan"));
        ip("-6 addr add 2001:db8:1::1/64 dev wan nodad");
        world.there(&format!("ip -6 addr add {SIX}/64 dev eth0 nodad"));
        world.there("ip -6 route add 2001:db8:77::/64 via 2001:db8:1::1");
        // This host obeys source routes in packets.
        let obeys = ["all", "eth0"].map(|it| format!("net.ipv4.conf.{it}.accept_source_route=1"));
        world.there(&format!("sysctl -q -w {}", obeys.join(" ")));
        for line in COUNT.lines() {
            world.there(&format!("nft add {line}"));
        }
        let internet = Self { world, folder };
        wait_until("its resolver is up", SOON, || {
            internet.log().contains(&"up".into()).then_some(())
        });
        internet
    }

    /// The directory of its servers: pages below `www/HOST`, repositories in `git`.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Configuration for a server whose sandboxes then use this world's resolver.
    #[must_use]
    pub fn config(&self) -> String {
        format!("[network]\nresolvers = [\"{PUBLIC}:53\"]\n")
    }

    /// The certificate of the authority that signed the web servers' certificates.
    ///
    /// # Panics
    /// When the file cannot be read.
    #[must_use]
    pub fn authority(&self) -> String {
        fs::read_to_string(self.folder.path().join("ca.pem")).expect("reads")
    }

    /// The log of its servers, by lines.
    ///
    /// # Panics
    /// When the file cannot be read.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("log")).expect("reads");
        text.lines().map(str::to_owned).collect()
    }

    /// Everything that has arrived: `address protocol port` for TCP and UDP, `address protocol` for
    /// other protocols, and `from address` for packets with a source address other than the host's.
    #[must_use]
    pub fn arrived(&self) -> BTreeSet<String> {
        let all = ["ports", "others", "six", "strangers"].map(|set| self.set(set));
        all.into_iter().flatten().collect()
    }

    fn set(&self, name: &str) -> Vec<String> {
        let said = self.world.says(&format!("nft -j list set inet seen {name}"));
        let answer: Value = serde_json::from_str(&said).expect("JSON");
        let sets = answer["nftables"].as_array().into_iter().flatten();
        let elements = sets.filter_map(|one| one["set"]["elem"].as_array()).flatten();
        let word = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        elements
            .map(|element| match element["concat"].as_array() {
                Some(parts) => parts.iter().map(word).collect::<Vec<_>>().join(" "),
                None => format!("from {}", word(element)),
            })
            .collect()
    }
}

const COUNT: &str = "table inet seen
set inet seen ports { type ipv4_addr . inet_proto . inet_service ; flags dynamic ; size 65535 ; }
set inet seen others { type ipv4_addr . inet_proto ; flags dynamic ; size 65535 ; }
set inet seen six { type ipv6_addr . inet_proto ; flags dynamic ; size 65535 ; }
set inet seen strangers { type ipv4_addr ; flags dynamic ; size 65535 ; }
chain inet seen seen { type filter hook prerouting priority -150 ; }
rule inet seen seen iifname != eth0 return
rule inet seen seen meta nfproto ipv6 icmpv6 type != echo-request return
rule inet seen seen meta nfproto ipv6 add @six { ip6 daddr . meta l4proto }
rule inet seen seen meta nfproto ipv6 return
rule inet seen seen meta l4proto { tcp, udp } add @ports { ip daddr . meta l4proto . th dport }
rule inet seen seen meta l4proto != { tcp, udp } add @others { ip daddr . ip protocol }
rule inet seen seen ip saddr != 203.0.113.1 add @strangers { ip saddr }";

/// Creates an authority and one certificate for every name of the zone.
fn certificates(folder: &Path, zone: &Value) {
    let names = zone.as_object().expect("names").keys();
    let names: Vec<String> = names.map(|name| format!("DNS:{name}")).collect();
    let make = |name: &str, words: &[&str]| {
        let mut command = Command::new("openssl");
        command
            .current_dir(folder)
            .args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "30"]);
        command.args(["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", &format!("/CN={name}")]);
        command.args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")]);
        let output = command.args(words).output().expect("openssl is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    make("ca", &["-addext", "keyUsage=critical,keyCertSign,cRLSign"]);
    let names = format!("subjectAltName={}", names.join(","));
    let signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", &names];
    make("web", &[&signed[..], &["-addext", "basicConstraints=critical,CA:FALSE"]].concat());
}

/// A network namespace behind a plain masquerade, as containers often have it, without Isolet's
/// rules. What gets out of it shows that a probe works.
#[derive(Debug)]
pub struct Masquerade {
    holder: std::process::Child,
}

impl Masquerade {
    /// Creates one in this thread's network.
    ///
    /// # Panics
    /// When it cannot be created.
    #[must_use]
    pub fn new() -> Self {
        let mut holder = Command::new("unshare");
        holder.args(["--net", "sh", "-c", "echo; exec sleep 600"]);
        let mut holder = holder.stdout(std::process::Stdio::piped()).spawn().expect("unshare");
        let said = holder.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(said, &mut [0]).expect("it is there");
        let pid = holder.id();
        ip(&format!("link add plain0 type veth peer name eth0 netns {pid}"));
        ip("addr add 10.77.0.1/24 dev plain0");
        ip("link set plain0 up");
        let within = |what: &str| run("nsenter", &format!("-t {pid} -n {what}"));
        within("ip link set lo up");
        within("ip addr add 10.77.0.2/24 dev eth0");
        within("ip link set eth0 up");
        within("ip route add default via 10.77.0.1");
        ip("-6 addr add 2001:db8:77::1/64 dev plain0 nodad");
        within("ip -6 addr add 2001:db8:77::2/64 dev eth0 nodad");
        within("ip -6 route add default via 2001:db8:77::1");
        within("sysctl -q -w net.ipv4.ping_group_range=0\t2147483647");
        run("sysctl", "-q -w net.ipv4.conf.plain0.accept_source_route=1");
        run("sysctl", "-q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        run("nft", "add table ip plain");
        run("nft", "add chain ip plain out { type nat hook postrouting priority 100 ; }");
        run("nft", "add rule ip plain out ip saddr 10.77.0.0/24 oifname != plain0 masquerade");
        Self { holder }
    }

    /// Runs a Python program with arguments in the namespace to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn python(&self, program: &str, words: &[&str]) -> std::process::Output {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.id().to_string(), "-n", "timeout", "120", "python3"]);
        command.args(["-c", program]).args(words).output().expect("nsenter is there")
    }
}

impl Default for Masquerade {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Masquerade {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Builds a zone from names with one address each.
#[must_use]
pub fn zone(names: &[(&str, Ipv4Addr)]) -> Value {
    let all = names.iter().map(|(name, at)| ((*name).to_owned(), json!([at.to_string()])));
    Value::Object(all.collect())
}
