//! The table `[network]`: where sandboxes may connect to.

use anyhow::{Context, Result, bail};
use isolet_sandbox::network::NetworkSettings;
use isolet_sandbox::profiles::{self, Profile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// The table in the file.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NetworkFile {
    resolvers: Option<Vec<SocketAddr>>,
    opened: Option<Vec<String>>,
    default: Option<String>,
    range: Option<String>,
    connections_max: Option<u32>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    profiles: BTreeMap<String, ProfileFile>,
}

/// The private and shared networks from which `range` may be chosen.
const RANGES: [(Ipv4Addr, u8); 5] = [
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
];
/// The largest `connections_max`. All sandboxes share the kernel's connection table.
const CONNECTIONS_MOST: u32 = 65_536;

/// A network profile that every tenant can use.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct ProfileFile {
    description: String,
    allow: Vec<String>,
    deny: Vec<String>,
}

/// A network as text: its first address and its prefix length.
fn network(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
    let address: Ipv4Addr = address.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    let mask = u32::MAX.checked_shl(32_u32.checked_sub(u32::from(bits))?).unwrap_or(0);
    (address.to_bits() & !mask == 0).then_some((address, bits))
}

/// Parses `range`. Its 65,536 addresses must be private or shared, so that no sandbox address
/// shadows a public host.
fn range(text: &str) -> Result<Ipv4Addr> {
    let within = |first: Ipv4Addr, network: (Ipv4Addr, u8)| {
        let (net, bits) = network;
        (first.to_bits() ^ net.to_bits()).leading_zeros() >= u32::from(bits)
    };
    match network(text) {
        Some((first, 16)) if RANGES.into_iter().any(|one| within(first, one)) => Ok(first),
        _ => bail!(
            "network.range: {text:?} is not a private or shared network of 16 bits, such as \"10.231.0.0/16\""
        ),
    }
}

impl NetworkFile {
    /// The settings, with defaults for missing values.
    pub(super) fn settings(self) -> Result<NetworkSettings> {
        let resolvers = self.resolvers.unwrap_or_default();
        let mut all = NetworkSettings { resolvers, ..NetworkSettings::default() };
        for text in self.opened.unwrap_or_default() {
            let Some(opened) = network(&text) else {
                bail!("network.opened: {text:?} is not an IPv4 network");
            };
            all.opened.push(opened);
        }
        if let Some(text) = self.range {
            all.range = range(&text)?;
        }
        if let Some(max) = self.connections_max {
            if !(1..=CONNECTIONS_MOST).contains(&max) {
                bail!("network.connections_max: {max} is not between 1 and {CONNECTIONS_MOST}");
            }
            all.connections_max = max;
        }
        let profile = |(name, file): (String, ProfileFile)| {
            let ProfileFile { description, allow, deny } = file;
            let profile = Profile { name: name.clone(), description, allow, deny };
            profile.check().with_context(|| format!("network.profiles.{name}"))?;
            Ok((name, profile))
        };
        all.profiles = self.profiles.into_iter().map(profile).collect::<Result<_>>()?;
        if let Some(name) = self.default {
            let own: Vec<Profile> = all.profiles.values().cloned().collect();
            all.default = profiles::network(&name, &own)?;
        }
        Ok(all)
    }

    /// The effective settings, including the defaults.
    pub(super) fn shown(all: &NetworkSettings) -> Self {
        let text = |(address, bits): &(Ipv4Addr, u8)| format!("{address}/{bits}");
        let profile = |profile: &Profile| ProfileFile {
            description: profile.description.clone(),
            allow: profile.allow.clone(),
            deny: profile.deny.clone(),
        };
        let default = all.default.profile().unwrap_or_else(|| all.default.mode().word());
        Self {
            resolvers: Some(all.resolvers.clone()),
            opened: Some(all.opened.iter().map(text).collect()),
            default: Some(default.to_owned()),
            range: Some(text(&(all.range, 16))),
            connections_max: Some(all.connections_max),
            profiles: all.profiles.iter().map(|(name, it)| (name.clone(), profile(it))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<NetworkSettings> {
        toml::from_str::<NetworkFile>(text).map_err(anyhow::Error::from)?.settings()
    }

    #[test]
    fn what_is_said_is_in_force_and_shows_itself() {
        let text = "resolvers = [\"192.0.2.1:53\"]\nopened = [\"10.1.0.0/16\", \"10.2.3.4\"]\n\
            default = \"web\"\nrange = \"172.20.0.0/16\"\nconnections_max = 9\n[profiles.web]\nallow = [\"*:443\"]\n";
        let all = read(text).unwrap();
        assert_eq!(all.resolvers, ["192.0.2.1:53".parse().unwrap()]);
        assert_eq!((all.range, all.connections_max), (Ipv4Addr::new(172, 20, 0, 0), 9));
        assert_eq!(all.opened[1], (Ipv4Addr::new(10, 2, 3, 4), 32));
        assert_eq!(
            (all.default.allow(), all.default.profile()),
            (&["*:443".to_owned()][..], Some("web"))
        );
        assert_eq!(NetworkFile::shown(&all).settings().unwrap(), all);
        assert_eq!(read("").unwrap(), NetworkSettings::default());
        assert_eq!(read("default = \"open\"").unwrap().default.mode().word(), "open");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for bad in [
            "opened = [\"x\"]",
            "opened = [\"10.0.0.0/33\"]",
            "opened = [\"fd00::/16\"]",
            "opened = [\"10.0.0.1/16\"]",
            "resolvers = [\"192.0.2.1\"]",
            "default = \"never-was\"",
            "range = \"10.231.0.0/15\"",
            "range = \"10.231.0.0/24\"",
            "range = \"10.231.1.0/16\"",
            "range = \"172.32.0.0/16\"",
            "range = \"8.8.0.0/16\"",
            "range = \"127.1.0.0/16\"",
            "range = \"fd00::/16\"",
            "range = \"\"",
            "connections_max = 0",
            "connections_max = -1",
            "connections_max = 65537",
            "[profiles.none]\nallow = []",
            "[profiles.A]\nallow = []",
            "[profiles.a]\nallow = [\"http://x\"]",
            "[profiles.a]\nnope = 1",
            "nope = 1",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
