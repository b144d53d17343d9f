//! A sandbox of a tenant, and how both ids become parts of keys.

use std::fmt;
use std::fmt::Write;
use std::sync::Arc;

/// Maximum length of the id of a tenant or of a sandbox, in bytes.
pub const ID_BYTES_MAX: usize = 128;

/// The ids of a tenant and of a sandbox of that tenant. Clones share the text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxKey {
    tenant: Arc<str>,
    id: Arc<str>,
}

/// The ids cannot become a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of a tenant or sandbox must have 1 to {ID_BYTES_MAX} bytes")]
pub struct BadSandboxKey;

impl SandboxKey {
    /// The key of this tenant's sandbox. Any text is allowed; [`encoded`] escapes it.
    ///
    /// # Errors
    /// [`BadSandboxKey`] if an id is empty or too long.
    pub fn new(tenant: &str, id: &str) -> Result<Self, BadSandboxKey> {
        let is_valid = |text: &str| (1..=ID_BYTES_MAX).contains(&text.len());
        if is_valid(tenant) && is_valid(id) {
            Ok(Self { tenant: tenant.into(), id: id.into() })
        } else {
            Err(BadSandboxKey)
        }
    }

    /// The id of the tenant.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The id of the sandbox.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// `TENANT/ID`, both escaped.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", encoded(&self.tenant), encoded(&self.id))
    }

    /// Reads what [`Self::path`] wrote.
    pub(super) fn of_path(path: &str) -> Option<Self> {
        let (tenant, id) = path.split_once('/')?;
        Self::new(&decoded(tenant)?, &decoded(id)?).ok()
    }
}

impl fmt::Display for SandboxKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of the tenant {:?}", &*self.id, &*self.tenant)
    }
}

/// The text with everything but letters, digits, `-` and `_` as `%XX`, so that different texts have
/// different codes and none contains a slash.
pub(super) fn encoded(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            code.push(char::from(byte));
        } else {
            let _ = write!(code, "%{byte:02X}");
        }
    }
    code
}

/// The text of a code; `None` if [`encoded`] cannot have written it.
pub(super) fn decoded(code: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(code.len());
    let mut rest = code.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first == b'%' {
            let (digits, behind) = rest.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = behind;
        } else {
            bytes.push(*first);
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    // Rejects other codes of the same text, such as lower-case digits.
    (encoded(&text) == code).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_pair_of_ids_has_a_path_of_its_own(
            a in ".{1,20}", b in ".{1,20}", c in "[ab/%]{1,3}", d in "[ab/%]{1,3}",
            e in "[ab/%]{1,3}", f in "[ab/%]{1,3}",
        ) {
            for (tenant, id) in [(&a, &b), (&c, &d), (&e, &f)] {
                let key = SandboxKey::new(tenant, id).unwrap();
                let path = key.path();
                prop_assert_eq!(path.matches('/').count(), 1);
                prop_assert_eq!(SandboxKey::of_path(&path), Some(key));
            }
            let one = SandboxKey::new(&c, &d).unwrap();
            let other = SandboxKey::new(&e, &f).unwrap();
            prop_assert_eq!(one == other, one.path() == other.path());
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,40}") {
            if let Some(key) = SandboxKey::of_path(&text) {
                prop_assert_eq!(key.path(), text);
            }
        }
    }

    #[test]
    fn ids_have_a_length() {
        let longest = "a".repeat(ID_BYTES_MAX);
        assert!(SandboxKey::new(&longest, "b").is_ok());
        assert!(SandboxKey::new("", "b").is_err());
        assert!(SandboxKey::new("a", "").is_err());
        assert!(SandboxKey::new("a", &"b".repeat(ID_BYTES_MAX + 1)).is_err());
        for code in ["a", "a/", "a/%", "a/%2", "a/%2f", "a/%41", "a/b/c", "a/%FF", "a/."] {
            assert_eq!(SandboxKey::of_path(code), None, "{code}");
        }
        assert_eq!(SandboxKey::of_path("a/%2F").unwrap().id(), "/");
    }
}
