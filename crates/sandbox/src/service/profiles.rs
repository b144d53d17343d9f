//! Network profiles of a tenant.

use crate::model::error::Error;
use crate::model::ids::TenantId;
use crate::model::network::profiles::{PROFILES_MAX, Profile, built_in, no};
use crate::service::Service;

impl Service {
    /// The network profiles of a tenant: the built-in ones with `none` first, the operator's, and
    /// its own sorted by name.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn profiles(&self, tenant: &TenantId) -> Result<Vec<Profile>, Error> {
        let rows = self.inner.store.profiles(tenant.as_str()).await?;
        let own = rows.iter().filter_map(|(_, body)| serde_json::from_str::<Profile>(body).ok());
        // A tenant's profile is hidden if its name has become a built-in one.
        let own = own.filter(|profile| !self.taken(&profile.name));
        let operators = self.inner.config.network.profiles.values().cloned();
        Ok(built_in().into_iter().chain(operators).chain(own).collect())
    }

    /// One network profile.
    ///
    /// # Errors
    /// [`Error::NoProfile`], and errors of the store.
    pub async fn profile(&self, tenant: &TenantId, name: &str) -> Result<Profile, Error> {
        let all = self.profiles(tenant).await?;
        let found = all.into_iter().find(|profile| profile.name == name);
        found.ok_or_else(|| no(name))
    }

    /// Stores a profile and replaces one of the same name. Returns `true` if there was none.
    ///
    /// # Errors
    /// [`Error::BadField`], [`Error::TooManyProfiles`], and errors of the store.
    pub async fn put_profile(&self, tenant: &TenantId, profile: &Profile) -> Result<bool, Error> {
        self.check_profile(profile)?;
        let body =
            serde_json::to_string(profile).map_err(|error| Error::Fault(error.to_string()))?;
        let tenant = tenant.as_str();
        let store = &self.inner.store;
        let put = store.put_profile(tenant, &profile.name, body, PROFILES_MAX).await?;
        put.ok_or(Error::TooManyProfiles { max: PROFILES_MAX })
    }

    /// Deletes a profile.
    ///
    /// # Errors
    /// [`Error::NoProfile`], [`Error::BadField`] if the profile is not the tenant's own, and errors
    /// of the store.
    pub async fn remove_profile(&self, tenant: &TenantId, name: &str) -> Result<(), Error> {
        self.check_own_profile(name)?;
        let gone = self.inner.store.remove_profile(tenant.as_str(), name).await?;
        if gone { Ok(()) } else { Err(no(name)) }
    }

    fn taken(&self, name: &str) -> bool {
        self.inner.config.network.profiles.contains_key(name)
            || built_in().iter().any(|profile| profile.name == name)
    }

    /// Checks a profile that a tenant wants to store.
    ///
    /// # Errors
    /// [`Error::BadField`].
    pub fn check_profile(&self, profile: &Profile) -> Result<(), Error> {
        profile.check()?;
        self.check_own_profile(&profile.name)
    }

    /// Refuses the names of profiles that a tenant cannot change.
    ///
    /// # Errors
    /// [`Error::BadField`].
    pub fn check_own_profile(&self, name: &str) -> Result<(), Error> {
        if !self.taken(name) {
            return Ok(());
        }
        let reason = format!("`{name}` is every tenant's and stays as it is; choose another");
        Err(Error::BadField { field: "name", reason })
    }
}
