//! Signed URLs of files, as the SDKs of E2B make them.

use base64::prelude::{BASE64_STANDARD_NO_PAD, Engine as _};
use sha2::{Digest as _, Sha256};

/// The path of a URL that reads a file of the user `user`, signed with the access token of its sandbox.
/// `expires_s` is in seconds since 1970.
#[must_use]
pub fn signed_file(path: &str, token: &str, expires_s: Option<u64>) -> String {
    let expiry = |before: &str| expires_s.map(|at| format!("{before}{at}")).unwrap_or_default();
    let text = format!("{path}:read:user:{token}{}", expiry(":"));
    let signature = BASE64_STANDARD_NO_PAD.encode(Sha256::digest(text)).replace('+', "%2B");
    format!(
        "/files?path={path}&username=user&signature=v1_{signature}{}",
        expiry("&signature_expiration=")
    )
}
