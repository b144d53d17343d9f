//! The API keys of the caller's tenant: who holds one, new ones, and their end.
//!
//! Every key that may change something may also create and revoke keys of its own tenant, and no others.
//! A key never outlives the key that created it.

use crate::app::App;
use crate::auth::caller::{Caller, unauthorized};
use crate::foundation::error::ApiError;
use crate::foundation::extensions::AuditedKey;
use crate::foundation::json::{SmallJson, not_null};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use isolet_clock::now_ms;
use isolet_sandbox::{Delegation, Key, KeyError, KeyFormat, KeyLimits, Keys, NewKey};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use utoipa::ToSchema;

/// The limits on a tenant's keys. In a fleet, nodes that create keys of one tenant at the same time count
/// without each other.
const LIMITS: KeyLimits = KeyLimits { valid_max: 200, recent_max: 1000 };
/// Maximum length of a label, in bytes.
const LABEL_BYTES_MAX: usize = 200;
/// Maximum lifetime of a key: 100 years, in seconds.
const TTL_S_MAX: u64 = 3_155_760_000;

/// An API key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiKey)]
pub(crate) struct KeyView {
    /// The id, by which the key is revoked.
    id: String,
    /// The tenant whose sandboxes the key gives access to.
    tenant: String,
    /// The owner's name for it.
    label: String,
    /// Whether it allows only calls that read.
    read_only: bool,
    /// When it was created, in ms since 1970.
    created_at_ms: i64,
    /// When it expires, in ms since 1970; `null`: never.
    expires_at_ms: Option<i64>,
    /// When it was revoked, in ms since 1970; `null`: it was not.
    revoked_at_ms: Option<i64>,
    /// When a request last used it, in ms since 1970; `null`: never.
    last_used_at_ms: Option<i64>,
}

impl From<Key> for KeyView {
    fn from(key: Key) -> Self {
        Self {
            id: key.id,
            tenant: key.tenant,
            label: key.label,
            read_only: key.read_only,
            created_at_ms: key.created_at_ms,
            expires_at_ms: key.expires_at_ms,
            revoked_at_ms: key.revoked_at_ms,
            last_used_at_ms: key.last_used_at_ms,
        }
    }
}

/// The key of a request.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CurrentApiKey)]
pub(crate) struct CurrentKey {
    /// The id; `null` for the key from the environment of the server.
    id: Option<String>,
    /// The tenant whose sandboxes the key gives access to.
    tenant: String,
    /// Whether it allows only calls that read.
    read_only: bool,
}

/// A key that was created, with its secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CreatedApiKey)]
pub(crate) struct CreatedKey {
    /// The secret. No other answer contains it: the server stores only its hash.
    secret: String,
    #[serde(flatten)]
    key: KeyView,
}

/// The parameters of a new key.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = CreateApiKey)]
pub(crate) struct CreateKey {
    /// A name by which people recognise the key, at most 200 bytes.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    label: Option<String>,
    /// Allow only calls that read.
    read_only: bool,
    /// Lifetime in seconds, at most 100 years. Defaults to that of the key that creates it.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    ttl_s: Option<u64>,
}

impl CreateKey {
    /// The parameters of the key; `creator` is the key that creates it.
    fn new_key(self, caller: &Caller, creator: Option<&Key>) -> Result<NewKey, ApiError> {
        let label = self.label.unwrap_or_default();
        if label.len() > LABEL_BYTES_MAX {
            return Err(ApiError::bad_field("label", "at most 200 bytes"));
        }
        let lifetime_ms = match self.ttl_s {
            Some(s @ 1..=TTL_S_MAX) => i64::try_from(s * 1000).ok(),
            Some(_) => return Err(ApiError::bad_field("ttl_s", "1 to 3155760000")),
            None => None,
        };
        let wanted = lifetime_ms.map(|ms| now_ms().saturating_add(ms));
        let limit = creator.and_then(|key| key.expires_at_ms);
        let expires_at_ms = match (wanted, limit) {
            (Some(wanted), Some(limit)) if wanted > limit => {
                let why = "the new key would outlive the key that creates it";
                return Err(ApiError::bad_field("ttl_s", why));
            }
            (wanted, limit) => wanted.or(limit),
        };
        Ok(NewKey {
            tenant: caller.tenant.as_str().to_owned(),
            label,
            read_only: self.read_only,
            expires_at_ms,
            format: KeyFormat::default(),
        })
    }
}

/// Runs a call of the store of keys, which blocks.
async fn stored<T: Send + 'static>(
    app: &App,
    call: impl FnOnce(&Keys) -> Result<T, KeyError> + Send + 'static,
) -> Result<T, ApiError> {
    let keys = app.service.keys().clone();
    let done = tokio::task::spawn_blocking(move || call(&keys)).await;
    match done {
        Ok(done) => done.map_err(key_error),
        Err(panicked) => Err(unreadable(&panicked)),
    }
}

fn key_error(error: KeyError) -> ApiError {
    let too_many = |hint| {
        let status = StatusCode::TOO_MANY_REQUESTS;
        ApiError::new(status, "too_many_keys", error.to_string(), hint)
    };
    match &error {
        KeyError::TooManyKeys { .. } => too_many("revoke one that is no longer needed"),
        KeyError::TooManyRecentKeys { .. } => too_many(
            "keys that were revoked or have expired count for one day; use a key for longer",
        ),
        KeyError::CreatorEnded => unauthorized(),
        error => unreadable(error),
    }
}

fn unreadable(error: &dyn Display) -> ApiError {
    tracing::error!(%error, "the keys cannot be read or written");
    let message = "the keys cannot be read or written";
    let status = StatusCode::SERVICE_UNAVAILABLE;
    ApiError::new(status, "storage_error", message, "see the server's log")
}

/// The keys of the caller's tenant, the oldest first.
async fn of_tenant(app: &App, caller: &Caller) -> Result<Vec<Key>, ApiError> {
    let tenant = caller.tenant.as_str().to_owned();
    stored(app, move |keys| keys.list_of(&tenant)).await
}

/// List API keys
///
/// Returns the keys of the caller's tenant without their secrets, oldest first, also those that have
/// expired or were revoked.
#[utoipa::path(
    get, path = "/v1/keys", operation_id = "keys_list", tag = "keys",
    responses(
        (status = 200, description = "The keys.", body = Vec<KeyView>, example = json!([{"id": "key_0123456789abcdef", "tenant": "default", "label": "laptop", "read_only": false, "created_at_ms": 1767225600000_i64, "expires_at_ms": null, "revoked_at_ms": null, "last_used_at_ms": 1767225700000_i64}]))
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
) -> Result<Json<Vec<KeyView>>, ApiError> {
    let all = of_tenant(&app, &caller).await?;
    Ok(Json(all.into_iter().map(KeyView::from).collect()))
}

/// Get the key of this request
///
/// Tells a client what its key allows.
#[utoipa::path(
    get, path = "/v1/keys/current", operation_id = "keys_current", tag = "keys",
    responses(
        (status = 200, description = "The key.", body = CurrentKey, example = json!({"id": "key_0123456789abcdef", "tenant": "default", "read_only": false}))
    )
)]
pub(crate) async fn current(caller: Caller) -> Json<CurrentKey> {
    let tenant = caller.tenant.as_str().to_owned();
    Json(CurrentKey { id: caller.key, tenant, read_only: caller.read_only })
}

/// Create an API key
///
/// Creates a key of the caller's tenant. Only this answer contains its secret. A key expires no later
/// than the key that created it, and stays valid when that one is revoked.
#[utoipa::path(
    post, path = "/v1/keys", operation_id = "keys_create", tag = "keys",
    request_body(content = CreateKey, example = json!({"label": "ci", "read_only": true, "ttl_s": 2592000})),
    responses(
        (status = 201, description = "The key was created.", body = CreatedKey)
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    body: SmallJson<CreateKey>,
) -> Result<(StatusCode, Extension<AuditedKey>, Json<CreatedKey>), ApiError> {
    let all = of_tenant(&app, &caller).await?;
    let creator = all.iter().find(|key| caller.key.as_ref() == Some(&key.id));
    if caller.key.is_some() && creator.is_none() {
        return Err(unauthorized());
    }
    let new = body.value.new_key(&caller, creator)?;
    let delegation = Delegation { creator: caller.key, limits: LIMITS };
    let add = move |keys: &Keys| keys.add_delegated(&new, &delegation);
    let (key, secret) = stored(&app, add).await?;
    let audited = Extension(AuditedKey(key.id.clone()));
    Ok((StatusCode::CREATED, audited, Json(CreatedKey { secret, key: key.into() })))
}

/// Revoke an API key
///
/// The key, its tickets and the links that it created are void at once, and its open connections end.
/// A key can revoke itself.
#[utoipa::path(
    delete, path = "/v1/keys/{key_id}", operation_id = "keys_revoke", tag = "keys",
    params(
        ("key_id" = String, Path, description = "The id of the key.")
    ),
    responses(
        (status = 204, description = "The key was revoked.")
    )
)]
pub(crate) async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let all = of_tenant(&app, &caller).await?;
    let missing = || {
        let message = format!("there is no valid key {id:?}");
        ApiError::new(StatusCode::NOT_FOUND, "no_api_key", message, "GET /v1/keys lists all keys")
    };
    if !all.iter().any(|key| key.id == id) {
        return Err(missing());
    }
    let named = id.clone();
    let revoked = stored(&app, move |keys| keys.revoke(&named)).await?;
    if revoked { Ok(StatusCode::NO_CONTENT) } else { Err(missing()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolet_sandbox::TenantId;

    fn caller() -> Caller {
        Caller {
            tenant: TenantId::default_tenant(),
            read_only: false,
            key: Some("key_1".to_owned()),
            ticket_scope: None,
            forwarded: false,
        }
    }

    fn creator(expires_at_ms: Option<i64>) -> Key {
        Key {
            id: "key_1".to_owned(),
            tenant: "default".to_owned(),
            label: String::new(),
            read_only: false,
            created_at_ms: 0,
            expires_at_ms,
            revoked_at_ms: None,
            last_used_at_ms: None,
        }
    }

    /// An expiring key would otherwise be exchanged for one that never expires.
    #[test]
    fn a_key_never_outlives_the_key_that_creates_it() {
        let soon = now_ms() + 60_000;
        let with = |ttl_s: Option<u64>, expires: Option<i64>| {
            let body = CreateKey { ttl_s, ..CreateKey::default() };
            body.new_key(&caller(), Some(&creator(expires))).map(|new| new.expires_at_ms)
        };
        assert_eq!(with(None, Some(soon)).unwrap(), Some(soon));
        assert!(with(Some(30), Some(soon)).unwrap().is_some_and(|at| at < soon));
        assert!(with(Some(90), Some(soon)).is_err());
        assert_eq!(with(None, None).unwrap(), None);
        assert!(with(Some(90), None).unwrap().is_some());
        assert!(with(Some(0), None).is_err() && with(Some(u64::MAX), None).is_err());
    }
}
