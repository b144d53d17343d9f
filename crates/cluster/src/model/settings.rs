//! The table `[cluster]` of the configuration file.

use crate::etcd::EtcdError;
use crate::etcd::EtcdIdentityFiles;
use crate::etcd::EtcdSettings;
use crate::etcd::EtcdTlsFiles;
use crate::model::keys::BadPrefix;
use crate::model::keys::Keys;
use crate::model::label::LABELS_MAX;
use crate::model::label::Label;
use crate::model::label::Labels;
use isolet_wire::node::NodeName;
use serde::Deserialize;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

/// The allowed lifetimes of a node's lease, in seconds. Below the first, an election of etcd takes a
/// large part of it; above the last, a failed node is replaced too late.
pub const LEASE_TTL_S: RangeInclusive<u32> = 5..=300;
/// The default lifetime of a node's lease, in seconds.
const LEASE_TTL_S_DEFAULT: u32 = 10;
/// The default prefix of all keys.
const PREFIX_DEFAULT: &str = "isolet";
/// The default region.
const REGION_DEFAULT: &str = "default";
/// The default directory of the node's certificate.
const PEER_DIR_DEFAULT: &str = "/etc/isolet/peer";
/// The default time for which the files of superseded sandboxes are kept: a week.
const SUPERSEDED_KEEP_S_DEFAULT: u64 = 7 * 24 * 3600;
/// The longest one: a year.
const SUPERSEDED_KEEP_S_MAX: u64 = 366 * 24 * 3600;
/// Maximum length of the address for other nodes, in bytes: a host name and a port.
const ADDRESS_BYTES_MAX: usize = 259;

/// The table in the file. Without it a server is no part of a fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterFile {
    /// URLs of etcd's members.
    pub etcd: Vec<String>,
    /// Certificates of the authorities that sign etcd's certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_ca_file: Option<PathBuf>,
    /// The certificate with which this node logs in to etcd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_cert_file: Option<PathBuf>,
    /// The key of that certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_key_file: Option<PathBuf>,
    /// The first part of all keys in etcd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The name of this node.
    pub node: String,
    /// The region of this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Labels of this node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Where other nodes reach this one: `HOST:PORT`.
    pub advertise: String,
    /// The address on which this node listens for other nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The directory of this node's certificate, as `isolet cluster issue` writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_dir: Option<PathBuf>,
    /// Which of several possible nodes new sandboxes are placed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementStrategy>,
    /// The lifetime of this node's lease, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ttl_s: Option<u32>,
    /// Whether this node holds sandboxes of the class `store`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<bool>,
    /// How long the files of sandboxes are kept that another node has taken over, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded_keep_s: Option<u64>,
    /// How long a sandbox of the class `store` sleeps before only the object store has it, in seconds; 0
    /// means that none is evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evict_after_s: Option<u64>,
}

/// Which of several possible nodes a new sandbox is placed on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementStrategy {
    /// The node with the largest free part of its memory.
    #[default]
    Spread,
    /// The node with the smallest free part, so that others stay empty.
    Pack,
}

/// The checked settings of a node. More than 12 fields: one for each setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// etcd.
    pub etcd: EtcdSettings,
    /// Makes the keys.
    pub keys: Keys,
    /// The name of this node.
    pub node: NodeName,
    /// The region of this node.
    pub region: Label,
    /// The labels of this node.
    pub labels: Labels,
    /// Where other nodes reach this one: `HOST:PORT`.
    pub advertise: String,
    /// The address on which this node listens for other nodes.
    pub listen: SocketAddr,
    /// The directory of this node's certificate.
    pub peer_dir: PathBuf,
    /// Which of several possible nodes new sandboxes are placed on.
    pub placement: PlacementStrategy,
    /// The lifetime of this node's lease.
    pub lease_ttl: Duration,
    /// Whether this node holds sandboxes of the class `store`.
    pub store: bool,
    /// How long the files of sandboxes are kept that another node has taken over.
    pub superseded_keep: Duration,
    /// How long a sandbox of the class `store` sleeps before it is evicted; `None`: never.
    pub evict_after: Option<Duration>,
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// `etcd` and the files for TLS.
    #[error("[cluster]: {0}")]
    Etcd(#[from] EtcdError),
    /// `prefix`.
    #[error("[cluster] prefix: {0}")]
    Prefix(#[from] BadPrefix),
    /// Another setting.
    #[error("[cluster] {name}: {reason}")]
    Other {
        /// The name of the setting.
        name: String,
        /// What is wrong with its value.
        reason: String,
    },
}

impl ClusterFile {
    /// Checks the settings. Reads no file.
    ///
    /// # Errors
    /// [`SettingsError`] names the setting.
    pub fn settings(self) -> Result<ClusterSettings, SettingsError> {
        let ttl_s = self.lease_ttl_s.unwrap_or(LEASE_TTL_S_DEFAULT);
        if !LEASE_TTL_S.contains(&ttl_s) {
            let least = LEASE_TTL_S.start();
            let most = LEASE_TTL_S.end();
            return Err(other("lease_ttl_s", &format_args!("must be {least} to {most}: {ttl_s}")));
        }
        let region = self.region.as_deref().unwrap_or(REGION_DEFAULT);
        let region = Label::parse(region).map_err(|error| other("region", &error))?;
        if self.labels.len() > LABELS_MAX {
            return Err(other("labels", &format_args!("at most {LABELS_MAX} are possible")));
        }
        let label = |(name, value): (&String, &String)| {
            let parse = |text: &str| {
                Label::parse(text).map_err(|error| other(&format!("labels.{name}"), &error))
            };
            Ok((parse(name)?, parse(value)?))
        };
        let labels = self.labels.iter().map(label).collect::<Result<_, SettingsError>>()?;
        let port = check_address(&self.advertise)?;
        // The same port on all addresses of this machine.
        let listen = self.listen.unwrap_or_else(|| match self.advertise.starts_with('[') {
            true => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
            false => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        });
        let keep_s = self.superseded_keep_s.unwrap_or(SUPERSEDED_KEEP_S_DEFAULT);
        if keep_s > SUPERSEDED_KEEP_S_MAX {
            return Err(other(
                "superseded_keep_s",
                &format_args!("{keep_s} is more than {SUPERSEDED_KEEP_S_MAX} (a year)"),
            ));
        }
        let evict_s = self.evict_after_s.unwrap_or(0);
        if evict_s > SUPERSEDED_KEEP_S_MAX {
            return Err(other(
                "evict_after_s",
                &format_args!("{evict_s} is more than {SUPERSEDED_KEEP_S_MAX} (a year)"),
            ));
        }
        let peer_dir = self.peer_dir.clone().unwrap_or_else(|| PEER_DIR_DEFAULT.into());
        let etcd = EtcdSettings { tls: self.tls()?, endpoints: self.etcd };
        etcd.check()?;
        Ok(ClusterSettings {
            etcd,
            keys: Keys::new(self.prefix.as_deref().unwrap_or(PREFIX_DEFAULT))?,
            node: NodeName::parse(&self.node).map_err(|error| other("node", &error))?,
            region,
            labels,
            advertise: self.advertise,
            listen,
            peer_dir: absolute("peer_dir", &peer_dir)?,
            placement: self.placement.unwrap_or_default(),
            lease_ttl: Duration::from_secs(u64::from(ttl_s)),
            store: self.store.unwrap_or(false),
            superseded_keep: Duration::from_secs(keep_s),
            evict_after: (evict_s > 0).then(|| Duration::from_secs(evict_s)),
        })
    }

    /// The effective settings, for people.
    #[must_use]
    pub fn shown(settings: &ClusterSettings) -> Self {
        let tls = settings.etcd.tls.as_ref();
        let identity = tls.and_then(|tls| tls.identity.as_ref());
        let label = |(name, value): (&Label, &Label)| (name.to_string(), value.to_string());
        Self {
            etcd: settings.etcd.endpoints.clone(),
            etcd_ca_file: tls.map(|tls| tls.ca.clone()),
            etcd_cert_file: identity.map(|identity| identity.certificate.clone()),
            etcd_key_file: identity.map(|identity| identity.key.clone()),
            prefix: Some(settings.keys.prefix().to_owned()),
            node: settings.node.to_string(),
            region: Some(settings.region.to_string()),
            labels: settings.labels.iter().map(label).collect(),
            advertise: settings.advertise.clone(),
            listen: Some(settings.listen),
            peer_dir: Some(settings.peer_dir.clone()),
            placement: Some(settings.placement),
            lease_ttl_s: u32::try_from(settings.lease_ttl.as_secs()).ok(),
            store: Some(settings.store),
            superseded_keep_s: Some(settings.superseded_keep.as_secs()),
            evict_after_s: Some(settings.evict_after.map_or(0, |after| after.as_secs())),
        }
    }

    fn tls(&self) -> Result<Option<EtcdTlsFiles>, SettingsError> {
        let identity = match (&self.etcd_cert_file, &self.etcd_key_file) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(EtcdIdentityFiles {
                certificate: absolute("etcd_cert_file", certificate)?,
                key: absolute("etcd_key_file", key)?,
            }),
            (Some(_), None) => return Err(other("etcd_key_file", &"is missing; set both or none")),
            (None, Some(_)) => {
                return Err(other("etcd_cert_file", &"is missing; set both or none"));
            }
        };
        match &self.etcd_ca_file {
            Some(ca) => Ok(Some(EtcdTlsFiles { ca: absolute("etcd_ca_file", ca)?, identity })),
            None if identity.is_some() => {
                Err(other("etcd_ca_file", &"is missing; it is needed with etcd_cert_file"))
            }
            None => Ok(None),
        }
    }
}

fn absolute(name: &str, path: &Path) -> Result<PathBuf, SettingsError> {
    if path.is_absolute() {
        Ok(path.to_owned())
    } else {
        Err(other(name, &format_args!("must be an absolute path: {}", path.display())))
    }
}

/// Checks `HOST:PORT`, with an address that other machines can reach. Returns the port.
fn check_address(address: &str) -> Result<u16, SettingsError> {
    let refused = |reason: &str| Err(other("advertise", &format_args!("{address:?} {reason}")));
    let Some((host, port)) = address.rsplit_once(':') else {
        return refused("is not HOST:PORT, such as \"10.0.0.5:7301\"");
    };
    let port = port.parse::<u16>().ok().filter(|port| *port > 0);
    let Some(port) = port.filter(|_| address.len() <= ADDRESS_BYTES_MAX) else {
        return refused("has no port from 1 to 65535");
    };
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let bare = in_brackets.unwrap_or(host);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    match bare.parse::<std::net::IpAddr>() {
        Ok(ip) if ip.is_unspecified() => refused("is an address to listen on, not one to reach"),
        Ok(std::net::IpAddr::V6(_)) if in_brackets.is_none() => {
            refused("needs brackets around the address")
        }
        Ok(_) => Ok(port),
        Err(_) if !bare.is_empty() && bare.bytes().all(is_name) => Ok(port),
        Err(_) => refused("has no valid host name"),
    }
}

fn other(name: &str, reason: &dyn std::fmt::Display) -> SettingsError {
    SettingsError::Other { name: name.to_owned(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "etcd = [\"http://127.0.0.1:2379\"]\nnode = \"a\"\nadvertise = \"h:1\"\n";

    fn settings(text: &str) -> Result<ClusterSettings, SettingsError> {
        toml::from_str::<ClusterFile>(text).unwrap().settings()
    }

    #[test]
    fn the_least_settings_have_defaults() {
        let read = settings(LEAST).unwrap();
        assert_eq!(read.keys.prefix(), "isolet");
        assert_eq!(read.region.as_str(), "default");
        assert_eq!(read.lease_ttl, Duration::from_secs(10));
        assert!(!read.store && read.labels.is_empty());
        assert_eq!(read.listen, "0.0.0.0:1".parse().unwrap(), "the port of advertise");
        assert_eq!(read.placement, PlacementStrategy::Spread);
        let shown = toml::to_string(&ClusterFile::shown(&read)).unwrap();
        assert_eq!(toml::from_str::<ClusterFile>(&shown).unwrap().settings().unwrap(), read);
    }

    #[test]
    fn a_setting_out_of_bounds_is_named() {
        for (more, name) in [
            ("lease_ttl_s = 1", "lease_ttl_s"),
            ("lease_ttl_s = 301", "lease_ttl_s"),
            ("region = \"a b\"", "region"),
            ("prefix = \"a/b\"", "prefix"),
            ("labels = { a = \"\" }", "labels.a"),
            ("etcd_ca_file = \"relative\"", "etcd_ca_file"),
            ("peer_dir = \"relative\"", "peer_dir"),
            ("superseded_keep_s = 31622401", "superseded_keep_s"),
            ("evict_after_s = 31622401", "evict_after_s"),
            ("etcd_cert_file = \"/c\"", "etcd_key_file"),
            ("etcd_key_file = \"/k\"", "etcd_cert_file"),
            ("etcd_cert_file = \"/c\"\netcd_key_file = \"/k\"", "etcd_ca_file"),
            ("etcd_ca_file = \"/ca\"", "not encrypted"),
        ] {
            let error = settings(&format!("{LEAST}{more}")).unwrap_err().to_string();
            assert!(error.contains(name), "{more}: {error}");
        }
        assert!(toml::from_str::<ClusterFile>(&format!("{LEAST}unknown = 1")).is_err());
    }

    #[test]
    fn the_address_for_other_nodes_can_be_reached() {
        for good in ["node-1.example:7301", "10.0.0.1:1", "[::1]:7301", "127.0.0.1:65535"] {
            check_address(good).unwrap();
        }
        for bad in [
            "",
            "a",
            "a:",
            "a:0",
            "a:65536",
            ":1",
            "0.0.0.0:1",
            "[::]:1",
            "::1:1",
            "a/b:1",
            "u@h:1",
        ] {
            assert!(check_address(bad).is_err(), "{bad}");
        }
    }
}
