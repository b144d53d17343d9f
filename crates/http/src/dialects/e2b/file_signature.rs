//! Signed URLs of files, which the SDKs make without asking the server: a hash of the path, the
//! operation, the user, the access token and the expiry.

use crate::auth::caller::Caller;
use crate::auth::port_link::since_epoch;
use crate::dialects::e2b::access_token::{link, refused};
use crate::dialects::e2b::address::DAEMON_PORT;
use crate::foundation::error::ApiError;
use crate::foundation::query::Query;
use axum::http::{Method, Uri};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use isolet_sandbox::{SandboxId, Service, TenantId};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// How many sandboxes of different tenants with one id are considered. Generated ids are unique.
const SAME_ID_MAX: usize = 16;
/// How many keys of one tenant are considered.
const KEYS_MAX: usize = 1024;
/// The parameters of a request for a file.
pub(super) const PARAMETERS: [&str; 4] = ["path", "username", "signature", "signature_expiration"];

/// What a URL says about its signature.
struct SignedUrl {
    path: String,
    operation: &'static str,
    user: String,
    signature: String,
    /// In seconds since 1970.
    expires_s: Option<i64>,
}

impl SignedUrl {
    fn of(method: &Method, uri: &Uri) -> Result<Option<Self>, ApiError> {
        let operation = match *method {
            Method::GET | Method::HEAD => "read",
            Method::POST => "write",
            _ => return Ok(None),
        };
        if !uri.path().ends_with("/files") {
            return Ok(None);
        }
        let query = Query::of(uri, &PARAMETERS)?;
        let text = |name| Ok::<_, ApiError>(query.text(name)?.map(str::to_owned));
        let Some(signature) = text("signature")? else { return Ok(None) };
        let expires_s = match query.text("signature_expiration")? {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| {
                ApiError::bad_field("signature_expiration", "must be seconds since 1970")
            })?),
        };
        Ok(Some(Self {
            path: text("path")?.unwrap_or_default(),
            operation,
            user: text("username")?.unwrap_or_default(),
            signature,
            expires_s,
        }))
    }

    /// The signature that a client with this token makes.
    fn expected(&self, token: &str) -> String {
        let mut text = format!("{}:{}:{}:{token}", self.path, self.operation, self.user);
        if let Some(expires_s) = self.expires_s {
            text.push_str(&format!(":{expires_s}"));
        }
        format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)))
    }

    fn is_by(&self, token: &str) -> bool {
        bool::from(self.expected(token).as_bytes().ct_eq(self.signature.as_bytes()))
    }

    fn is_expired(&self) -> bool {
        let now = i64::try_from(since_epoch().as_secs()).unwrap_or(i64::MAX);
        self.expires_s.is_some_and(|expires_s| expires_s < now)
    }
}

/// The caller on whose behalf a signed URL works.
///
/// # Errors
/// 401 without a valid signature.
pub(super) async fn authenticate(
    service: &Service,
    sandbox: &SandboxId,
    method: &Method,
    uri: &Uri,
) -> Result<Caller, ApiError> {
    let url = SignedUrl::of(method, uri)?.ok_or_else(|| {
        refused("the request has no access token", "send it in the header X-Access-Token")
    })?;
    let service = service.clone();
    let sandbox = sandbox.clone();
    let found = tokio::task::spawn_blocking(move || signer(&service, &sandbox, &url)).await;
    found.unwrap_or_else(|_| Err(refused("invalid signature", "")))
}

/// Finds the key with whose token a URL was signed. Blocks.
fn signer(service: &Service, sandbox: &SandboxId, url: &SignedUrl) -> Result<Caller, ApiError> {
    for tenant in service.owners_of(sandbox).into_iter().take(SAME_ID_MAX) {
        let Ok((life, all)) = service.exposed(&tenant, sandbox) else { continue };
        let Some(exposed) = all.get(&DAEMON_PORT) else { continue };
        for key in keys(service, &tenant) {
            let link = link(tenant.clone(), key, sandbox);
            if url.is_by(&link.token(&exposed.secret, &life)) {
                return match url.is_expired() {
                    true => Err(refused("signature is already expired", "")),
                    false => Ok(link.caller),
                };
            }
        }
    }
    Err(refused("invalid signature", ""))
}

/// The ids of a tenant's valid keys; `None` stands for the key from the environment.
fn keys(service: &Service, tenant: &TenantId) -> Vec<Option<String>> {
    let valid = service.keys().valid_ids_of(tenant.as_str()).unwrap_or_default().into_iter();
    let environment = (*tenant == TenantId::default_tenant()).then_some(None);
    environment.into_iter().chain(valid.map(Some)).take(KEYS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> SignedUrl {
        SignedUrl::of(&Method::GET, &text.parse().unwrap()).unwrap().unwrap()
    }

    #[test]
    fn signatures_are_those_of_the_clients() {
        // e2b.sandbox.signature.get_signature("a b.txt", "read", "user", "token")
        let one = url("/v1/e2b/x/files?path=a%20b.txt&username=user&signature=v1_x");
        assert_eq!(one.expected("token"), python("a b.txt:read:user:token"));
        let other = url("/v1/e2b/x/files?path=a&signature=v1_x&signature_expiration=7");
        assert_eq!(other.expected("token"), python("a:read::token:7"));
        assert!(other.is_expired() && !one.is_expired());
        assert!(!one.is_by("token"));
    }

    fn python(text: &str) -> String {
        format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)))
    }

    #[test]
    fn only_urls_of_files_can_be_signed() {
        let of = |method: Method, uri: &str| SignedUrl::of(&method, &uri.parse().unwrap());
        assert!(of(Method::GET, "/v1/e2b/x/health?signature=v1_x").unwrap().is_none());
        assert!(of(Method::GET, "/v1/e2b/x/files?path=a").unwrap().is_none());
        assert!(of(Method::DELETE, "/v1/e2b/x/files?signature=v1_x").unwrap().is_none());
        assert!(of(Method::GET, "/v1/e2b/x/files?signature=v1_x&signature=v1_y").is_err());
        let bad = "/v1/e2b/x/files?signature=v1_x&signature_expiration=soon";
        assert!(of(Method::GET, bad).is_err());
    }
}
