//! A digest of the settings that should be the same on all nodes of a fleet.

use crate::model::config::Config;
use isolet_wire::launcher::Limits;
use serde_json::json;
use sha2::{Digest, Sha256};

/// Hexadecimal digits of the digest: enough to notice a difference.
const DIGITS: usize = 16;

impl Config {
    /// A digest of limits and quotas of tenants, and of the operator's network profiles. Equal
    /// settings have the same digest in every process.
    pub(crate) fn limits_digest(&self) -> String {
        let limits = |all: &Limits| json!([all.memory_mib, all.cpu_millis, all.pids, all.disk_mib]);
        let tenants = self.tenants.iter();
        let tenants =
            tenants.map(|(id, own)| json!([id.as_str(), own.sandboxes_max, own.disk_mib]));
        let profiles = self.network.profiles.values();
        let profiles = profiles.map(|own| json!([own.name, own.allow, own.deny]));
        let settings = json!([
            limits(&self.limits),
            limits(&self.limits_max),
            self.sandboxes_max,
            self.disk_quota_mib,
            tenants.collect::<Vec<_>>(),
            self.images.quotas.default_mib,
            self.images.quotas.tenants,
            profiles.collect::<Vec<_>>(),
        ]);
        let mut digest = hex::encode(Sha256::digest(settings.to_string()));
        digest.truncate(DIGITS);
        digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::TenantLimits;
    use crate::model::ids::TenantId;
    use crate::model::network::profiles::Profile;
    use std::path::Path;

    #[test]
    fn every_shared_setting_changes_the_digest() {
        let config = |data: &str| Config::new(data.into(), Path::new("/programs"));
        let same = config("/a").limits_digest();
        assert_eq!(config("/b").limits_digest(), same, "a setting of the node alone");
        assert_eq!(same.len(), DIGITS);
        let changes: [fn(&mut Config); 8] = [
            |config| config.limits.pids += 1,
            |config| config.limits_max.disk_mib += 1,
            |config| config.sandboxes_max += 1,
            |config| config.disk_quota_mib += 1,
            |config| {
                let tenant = TenantId::parse("t").unwrap();
                let limits = TenantLimits { sandboxes_max: Some(1), ..TenantLimits::default() };
                config.tenants.insert(tenant, limits);
            },
            |config| config.images.quotas.default_mib += 1,
            |config| {
                config.images.quotas.tenants.insert("t".into(), 1);
            },
            |config| {
                let profile = Profile { name: "web".into(), ..Profile::default() };
                config.network.profiles.insert("web".into(), profile);
            },
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut other = config("/a");
            change(&mut other);
            assert_ne!(other.limits_digest(), same, "change {index}");
        }
    }
}
