//! Network profiles: built-in ones, the operator's, and the tenant's own.

use crate::{
    app::App,
    auth::caller::Caller,
    foundation::{
        error::ApiError,
        json::{StrictJson, not_null},
    },
};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use isolet_sandbox::profiles::Profile;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Rules of a network under a name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProfileView {
    name: String,
    description: String,
    /// Hosts, `*.` and a host, addresses, networks, or `*`; each may end with `:PORT`.
    allow: Vec<String>,
    /// Likewise.
    deny: Vec<String>,
}

impl From<Profile> for ProfileView {
    fn from(profile: Profile) -> Self {
        let Profile { name, description, allow, deny } = profile;
        Self { name, description, allow, deny }
    }
}

/// What a profile is to say.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WriteProfile {
    /// For people, at most 1024 bytes.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    description: Option<String>,
    /// At most 256 rules.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    allow: Option<Vec<String>>,
    /// At most 256 rules.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    deny: Option<Vec<String>>,
}

/// The caller's network profiles: everybody's with `none` first, the operator's, its own.
#[utoipa::path(get, path = "/v1/network-profiles", tag = "isorun",
    responses((status = 200, body = Vec<ProfileView>)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
) -> Result<Json<Vec<ProfileView>>, ApiError> {
    let all = app.service.profiles(&caller.tenant).await?;
    Ok(Json(all.into_iter().map(ProfileView::from).collect()))
}

/// One network profile.
#[utoipa::path(get, path = "/v1/network-profiles/{name}", tag = "isorun",
    params(("name" = String, Path)),
    responses((status = 200, body = ProfileView), (status = 404, body = ApiError)))]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<ProfileView>, ApiError> {
    Ok(Json(app.service.profile(&caller.tenant, &name).await?.into()))
}

/// Keeps a network profile, in place of the one of its name: 201 for a new one, else 200. Sandboxes
/// that were made with it stay as they are.
#[utoipa::path(put, path = "/v1/network-profiles/{name}", tag = "isorun",
    params(("name" = String, Path)), request_body = WriteProfile,
    responses((status = 200, body = ProfileView), (status = 201, body = ProfileView), (status = "4XX", body = ApiError)))]
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
    let new = app.service.put_profile(&caller.tenant, &profile).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(profile.into())))
}

/// Forgets a network profile.
#[utoipa::path(delete, path = "/v1/network-profiles/{name}", tag = "isorun",
    params(("name" = String, Path)),
    responses((status = 204), (status = "4XX", body = ApiError)))]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    app.service.remove_profile(&caller.tenant, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
