//! The keys in etcd of what every node must know: API keys, network profiles, webhooks, revocation lists.

use crate::model::keys::Keys;
use crate::model::sandbox_key::decoded;
use crate::model::sandbox_key::encoded;

impl Keys {
    /// The key of the fleet's random id.
    #[must_use]
    pub fn fleet(&self) -> Vec<u8> {
        format!("{}/fleet", self.prefix()).into_bytes()
    }

    /// The prefix of all API keys.
    #[must_use]
    pub fn api_keys(&self) -> Vec<u8> {
        format!("{}/keys/", self.prefix()).into_bytes()
    }

    /// The key of an API key with this id.
    #[must_use]
    pub fn api_key(&self, id: &str) -> Vec<u8> {
        format!("{}/keys/{}", self.prefix(), encoded(id)).into_bytes()
    }

    /// The id of an API key; `None`: the key was not made by [`Self::api_key`].
    #[must_use]
    pub fn read_api_key(&self, key: &[u8]) -> Option<String> {
        decoded(self.below(key, "keys")?).filter(|id| !id.is_empty())
    }

    /// The prefix of the network profiles of all tenants.
    #[must_use]
    pub fn profiles(&self) -> Vec<u8> {
        format!("{}/profiles/", self.prefix()).into_bytes()
    }

    /// The prefix of a tenant's network profiles.
    #[must_use]
    pub fn profiles_of_tenant(&self, tenant: &str) -> Vec<u8> {
        format!("{}/profiles/{}/", self.prefix(), encoded(tenant)).into_bytes()
    }

    /// The key of a network profile.
    #[must_use]
    pub fn profile(&self, tenant: &str, name: &str) -> Vec<u8> {
        format!("{}/profiles/{}/{}", self.prefix(), encoded(tenant), encoded(name)).into_bytes()
    }

    /// The prefix of the webhooks of all tenants.
    #[must_use]
    pub fn webhooks(&self) -> Vec<u8> {
        format!("{}/webhooks/", self.prefix()).into_bytes()
    }

    /// The prefix of a tenant's webhooks.
    #[must_use]
    pub fn webhooks_of_tenant(&self, tenant: &str) -> Vec<u8> {
        format!("{}/webhooks/{}/", self.prefix(), encoded(tenant)).into_bytes()
    }

    /// The key of a webhook.
    #[must_use]
    pub fn webhook(&self, tenant: &str, id: &str) -> Vec<u8> {
        format!("{}/webhooks/{}/{}", self.prefix(), encoded(tenant), encoded(id)).into_bytes()
    }

    /// The tenant and the id of a webhook; `None`: the key was not made by [`Self::webhook`].
    #[must_use]
    pub fn read_webhook(&self, key: &[u8]) -> Option<(String, String)> {
        let (tenant, id) = self.below(key, "webhooks")?.split_once('/')?;
        Some((decoded(tenant)?, decoded(id)?))
    }

    /// The tenant and the name of a network profile; `None`: the key was not made by
    /// [`Self::profile`].
    #[must_use]
    pub fn read_profile(&self, key: &[u8]) -> Option<(String, String)> {
        let (tenant, name) = self.below(key, "profiles")?.split_once('/')?;
        Some((decoded(tenant)?, decoded(name)?))
    }

    /// The prefix of the revocation lists of all certificate authorities.
    #[must_use]
    pub fn revocation_lists(&self) -> Vec<u8> {
        format!("{}/revoked/", self.prefix()).into_bytes()
    }

    /// The key of the revocation list of the authority whose certificate has this fingerprint.
    #[must_use]
    pub fn revocation_list(&self, fingerprint: &str) -> Vec<u8> {
        format!("{}/revoked/{}", self.prefix(), encoded(fingerprint)).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_are_read_as_they_were_written(id in ".{1,20}", tenant in ".{1,20}") {
            let keys = Keys::new("isolet").unwrap();
            prop_assert_eq!(keys.read_api_key(&keys.api_key(&id)), Some(id.clone()));
            let profile = keys.profile(&tenant, &id);
            prop_assert!(profile.starts_with(&keys.profiles_of_tenant(&tenant)));
            prop_assert!(profile.starts_with(&keys.profiles()));
            prop_assert_eq!(keys.read_profile(&profile), Some((tenant.clone(), id.clone())));
            prop_assert_eq!(keys.read_profile(&keys.api_key(&id)), None);
            let webhook = keys.webhook(&tenant, &id);
            prop_assert!(webhook.starts_with(&keys.webhooks_of_tenant(&tenant)));
            prop_assert!(webhook.starts_with(&keys.webhooks()));
            prop_assert_eq!(keys.read_webhook(&profile), None);
            prop_assert_eq!(keys.read_webhook(&webhook), Some((tenant.clone(), id.clone())));
            prop_assert_eq!(keys.read_api_key(&profile), None);
        }
    }

    #[test]
    fn keys_of_others_are_not_read() {
        let keys = Keys::new("isolet").unwrap();
        for key in ["isolet/keys/", "isolet/keys/a/b", "other/keys/a", "isolet/keys/%2f"] {
            assert_eq!(keys.read_api_key(key.as_bytes()), None, "{key}");
        }
        for key in ["isolet/profiles/a", "isolet/profiles/a/b/c", "isolet/profile/a/b"] {
            assert_eq!(keys.read_profile(key.as_bytes()), None, "{key}");
        }
        assert_eq!(keys.revocation_list("ab"), b"isolet/revoked/ab");
        assert_eq!(keys.fleet(), b"isolet/fleet");
    }
}
