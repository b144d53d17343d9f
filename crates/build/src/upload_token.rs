//! Tokens that allow one upload of one tenant for a limited time, without a key. They are signed with
//! a key that a server makes at its start, so that a restart revokes them all.

use crate::files::FilesName;
use hmac::{Hmac, Mac};
use isolet_sandbox::TenantId;
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// The longest token, in bytes.
const TOKEN_BYTES_MAX: usize = 512;
/// Separates the parts of a token; no id contains it.
const SEPARATOR: char = '~';

/// What a token allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadGrant {
    /// The tenant that gets the files.
    pub tenant: TenantId,
    /// The id of the key on whose behalf the token was made; `None`: the key from the environment.
    pub key: Option<String>,
    /// When the token expires, in milliseconds since 1970.
    pub expires_ms: i64,
}

/// Signs and checks tokens.
pub(crate) struct UploadKey([u8; 32]);

impl UploadKey {
    /// A new key.
    ///
    /// # Panics
    /// If the kernel provides no random bytes, which cannot happen on Linux after boot.
    pub(crate) fn random() -> Self {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("random bytes");
        Self(bytes)
    }

    fn sign(&self, text: &str, files: &FilesName) -> [u8; 32] {
        let mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC accepts a key of any length");
        mac.chain_update(text)
            .chain_update([0])
            .chain_update(files.as_str())
            .finalize()
            .into_bytes()
            .into()
    }

    pub(crate) fn token(&self, grant: &UploadGrant, files: &FilesName) -> String {
        let key = grant.key.as_deref().unwrap_or_default();
        let text = format!("{}~{key}~{}", grant.expires_ms, grant.tenant);
        let mac = hex::encode(self.sign(&text, files));
        format!("{text}{SEPARATOR}{mac}")
    }

    /// What a token allows for these files; `None` if it is malformed, was changed, is for other files,
    /// or has expired.
    pub(crate) fn verify(
        &self,
        token: &str,
        files: &FilesName,
        now_ms: i64,
    ) -> Option<UploadGrant> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (text, mac) = token.rsplit_once(SEPARATOR)?;
        let mac = hex::decode(mac).ok()?;
        if !bool::from(self.sign(text, files).ct_eq(&mac)) {
            return None;
        }
        let mut parts = text.split(SEPARATOR);
        let expires_ms = parts.next()?.parse().ok()?;
        let key = parts.next()?;
        let tenant = TenantId::parse(parts.next()?).ok()?;
        let key = Some(key.to_owned()).filter(|key| !key.is_empty());
        (parts.next().is_none() && expires_ms > now_ms).then_some(UploadGrant {
            tenant,
            key,
            expires_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(letter: &str) -> FilesName {
        FilesName::parse(&letter.repeat(64)).unwrap()
    }

    #[test]
    fn a_token_is_for_one_upload_of_one_tenant_until_it_expires() {
        let key = UploadKey::random();
        let tenant = TenantId::parse("one").unwrap();
        let grant = UploadGrant { tenant, key: Some("k1".to_owned()), expires_ms: 100 };
        let token = key.token(&grant, &files("a"));
        assert_eq!(key.verify(&token, &files("a"), 99), Some(grant));
        assert_eq!(key.verify(&token, &files("a"), 100), None, "expired");
        assert_eq!(key.verify(&token, &files("b"), 99), None, "other files");
        assert_eq!(UploadKey::random().verify(&token, &files("a"), 99), None, "other server");
        assert_eq!(key.verify(&token.replace("~one~", "~two~"), &files("a"), 99), None);
        for at in 0..token.len() {
            let mut other = token.clone().into_bytes();
            other[at] ^= 1;
            let Ok(other) = String::from_utf8(other) else { continue };
            assert_eq!(key.verify(&other, &files("a"), 99), None, "byte {at}");
        }
        assert_eq!(key.verify("", &files("a"), 0), None);
    }
}
