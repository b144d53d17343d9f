//! Network profiles: built-in ones, the operator's, and the tenant's own.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use crate::foundation::json::{StrictJson, not_null};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use isolet_sandbox::profiles::Profile;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A named set of network rules.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NetworkProfile)]
pub(crate) struct ProfileView {
    /// The name, unique for the tenant.
    name: String,
    /// A description for people.
    description: String,
    /// Allowed destinations: hosts, `*.` and a host, addresses, networks, or `*`, optionally
    /// followed by `:PORT`.
    allow: Vec<String>,
    /// Denied destinations, in the same form.
    deny: Vec<String>,
}

impl From<Profile> for ProfileView {
    fn from(profile: Profile) -> Self {
        let Profile { name, description, allow, deny } = profile;
        Self { name, description, allow, deny }
    }
}

/// The contents of a network profile.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = WriteNetworkProfile)]
pub(crate) struct WriteProfile {
    /// A description for people, at most 1024 bytes.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    description: Option<String>,
    /// Allowed destinations, at most 256.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    allow: Option<Vec<String>>,
    /// Denied destinations, at most 256.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    deny: Option<Vec<String>>,
}

/// List network profiles
///
/// Returns the built-in profiles (`none` first), those of the operator, and those of the caller.
#[utoipa::path(
    get, path = "/v1/network-profiles", operation_id = "network_profiles_list", tag = "isorun",
    responses(
        (status = 200, description = "The profiles.", body = Vec<ProfileView>)
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
) -> Result<Json<Vec<ProfileView>>, ApiError> {
    let all = app.service.profiles(&caller.tenant).await?;
    Ok(Json(all.into_iter().map(ProfileView::from).collect()))
}

/// Get a network profile
#[utoipa::path(
    get, path = "/v1/network-profiles/{name}", operation_id = "network_profiles_get", tag = "isorun",
    params(
        ("name" = String, Path)
    ),
    responses(
        (status = 200, description = "The profile.", body = ProfileView)
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<ProfileView>, ApiError> {
    Ok(Json(app.service.profile(&caller.tenant, &name).await?.into()))
}

/// Create or replace a network profile
///
/// Sandboxes that were created with the earlier rules keep them.
#[utoipa::path(
    put, path = "/v1/network-profiles/{name}", operation_id = "network_profiles_put", tag = "isorun",
    params(
        ("name" = String, Path)
    ),
    request_body(content = WriteProfile, example = json!({"description": "Our API", "allow": ["api.example.com", "*.example.org:443"]})),
    responses(
        (status = 200, description = "The profile was replaced.", body = ProfileView),
        (status = 201, description = "The profile was created.", body = ProfileView)
    )
)]
pub(crate) async fn put(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    body: StrictJson<WriteProfile>,
) -> Result<(StatusCode, Json<ProfileView>), ApiError> {
    let WriteProfile { description, allow, deny } = body.value;
    let profile = Profile {
        name,
        description: description.unwrap_or_default(),
        allow: allow.unwrap_or_default(),
        deny: deny.unwrap_or_default(),
    };
    let new = match &app.fleet {
        Some(joined) => {
            app.service.check_profile(&profile)?;
            joined.fleet.put_profile(&caller.tenant, &profile).await?
        }
        None => app.service.put_profile(&caller.tenant, &profile).await?,
    };
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(profile.into())))
}

/// Delete a network profile
#[utoipa::path(
    delete, path = "/v1/network-profiles/{name}", operation_id = "network_profiles_delete", tag = "isorun",
    params(
        ("name" = String, Path)
    ),
    responses(
        (status = 204, description = "The profile was deleted.")
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let Some(joined) = &app.fleet else {
        app.service.remove_profile(&caller.tenant, &name).await?;
        return Ok(StatusCode::NO_CONTENT);
    };
    app.service.check_own_profile(&name)?;
    if !joined.fleet.remove_profile(&caller.tenant, &name).await? {
        return Err(isolet_sandbox::profiles::no(&name).into());
    }
    Ok(StatusCode::NO_CONTENT)
}
