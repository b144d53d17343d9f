//! Network profiles of a tenant.

use crate::{
    model::{
        error::Error,
        ids::TenantId,
        network::profiles::{PROFILES_MAX, Profile, built_in, no},
    },
    service::Service,
};

impl Service {
    /// A tenant's network profiles: everybody's with `none` first, the operator's, its own by name.
    ///
    /// # Errors
    /// What the records refuse.
    pub async fn profiles(&self, tenant: &TenantId) -> Result<Vec<Profile>, Error> {
        let rows = self.inner.store.profiles(tenant.as_str()).await?;
        let own = rows.iter().filter_map(|(_, body)| serde_json::from_str::<Profile>(body).ok());
        // One that was kept under a name that has been taken since is not seen.
        let own = own.filter(|profile| !self.taken(&profile.name));
        let operators = self.inner.config.network.profiles.values().cloned();
        Ok(built_in().into_iter().chain(operators).chain(own).collect())
    }

    /// One of them.
    ///
    /// # Errors
    /// [`Error::NoProfile`], and what the records refuse.
    pub async fn profile(&self, tenant: &TenantId, name: &str) -> Result<Profile, Error> {
        let all = self.profiles(tenant).await?;
        let found = all.into_iter().find(|profile| profile.name == name);
        found.ok_or_else(|| no(name))
    }

    /// Keeps a profile, in place of the one of its name; `true`: there was none.
    ///
    /// # Errors
    /// [`Error::BadField`], [`Error::TooManyProfiles`], and what the records refuse.
    pub async fn put_profile(&self, tenant: &TenantId, profile: &Profile) -> Result<bool, Error> {
        profile.check()?;
        self.own(&profile.name)?;
        let body =
            serde_json::to_string(profile).map_err(|error| Error::Fault(error.to_string()))?;
        let tenant = tenant.as_str();
        let store = &self.inner.store;
        let put = store.put_profile(tenant, &profile.name, body, PROFILES_MAX).await?;
        put.ok_or(Error::TooManyProfiles { max: PROFILES_MAX })
    }

    /// Forgets a profile.
    ///
    /// # Errors
    /// [`Error::NoProfile`], [`Error::BadField`] for one that is not the tenant's own, and what the
    /// records refuse.
    pub async fn remove_profile(&self, tenant: &TenantId, name: &str) -> Result<(), Error> {
        self.own(name)?;
        let gone = self.inner.store.remove_profile(tenant.as_str(), name).await?;
        if gone { Ok(()) } else { Err(no(name)) }
    }

    fn taken(&self, name: &str) -> bool {
        self.inner.config.network.profiles.contains_key(name)
            || built_in().iter().any(|profile| profile.name == name)
    }

    /// Refuses names of profiles that a tenant does not change.
    fn own(&self, name: &str) -> Result<(), Error> {
        if !self.taken(name) {
            return Ok(());
        }
        let reason = format!("`{name}` is every tenant's and stays as it is; choose another");
        Err(Error::BadField { field: "name", reason })
    }
}
