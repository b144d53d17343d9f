//! The platform that an image runs on: `linux/amd64`, `linux/arm/v7`.

use oci_spec::image::{Arch, Os, Platform as OciPlatform};

/// A platform of Linux. Images for other systems are never selected.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Platform {
    /// As Go names it: `amd64`, `arm64`.
    pub(crate) architecture: String,
    /// `None` matches every variant of the architecture.
    variant: Option<String>,
}

impl Platform {
    /// The platform of this machine.
    #[must_use]
    pub fn own() -> Self {
        Self { architecture: Arch::default().to_string(), variant: None }
    }

    /// Parses `linux/ARCHITECTURE` or `linux/ARCHITECTURE/VARIANT`. Returns `None` for other systems,
    /// and for parts that are not 1 to 32 letters and digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let plain = |part: &&str| {
            (1..=32).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
        };
        let os = parts.next()?;
        let architecture = parts.next().filter(plain)?.to_owned();
        let variant = parts.next();
        if os != "linux" || parts.next().is_some() || variant.is_some_and(|v| !plain(&v)) {
            return None;
        }
        Some(Self { architecture, variant: variant.map(str::to_owned) })
    }

    /// Whether an index entry for `other` runs on this platform.
    pub(crate) fn accepts(&self, other: &OciPlatform) -> bool {
        *other.os() == Os::Linux
            && other.architecture().to_string() == self.architecture
            && (self.variant.is_none() || self.variant == *other.variant())
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "linux/{}", self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_platforms_of_linux_are_accepted() {
        for text in ["linux/amd64", "linux/arm/v7"] {
            assert_eq!(Platform::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "linux", "linux/", "windows/amd64", "linux/arm/v7/x", "linux/a b"] {
            assert_eq!(Platform::parse(text), None, "{text}");
        }
        let own = Platform::own();
        assert_eq!(Platform::parse(&own.to_string()), Some(own));
    }
}
