//! The SHA-256 digest of an API key: the only form in which keys are stored and compared.

use sha2::{Digest, Sha256};
use std::hash::{Hash, Hasher};
use subtle::ConstantTimeEq;

/// SHA-256 of a key's secret. Digests are compared in constant time.
///
/// The time of an ordinary comparison would reveal nothing either, since a nearly correct guess has an
/// unrelated digest. `Eq` makes that argument unnecessary.
#[derive(Debug, Clone, Copy)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// Computes the digest of a secret, as sent in `Authorization: Bearer`.
    #[must_use]
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    /// A digest that was stored.
    #[must_use]
    pub fn from_record(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes to store.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl PartialEq for KeyDigest {
    fn eq(&self, other: &Self) -> bool {
        all_equal(&self.0, &other.0)
    }
}

impl Eq for KeyDigest {}

impl Hash for KeyDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The bytes of a digest are evenly distributed, so that the first ones suffice.
        state.write(&self.0[..8]);
    }
}

/// Compares all pairs, even after a difference.
fn all_equal<T: ConstantTimeEq>(one: &[T], other: &[T]) -> bool {
    one.ct_eq(other).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use subtle::Choice;

    thread_local!(static COMPARED: Cell<usize> = const { Cell::new(0) });

    /// A byte that counts how often it is compared.
    struct Counted(u8);

    impl ConstantTimeEq for Counted {
        fn ct_eq(&self, other: &Self) -> Choice {
            COMPARED.set(COMPARED.get() + 1);
            self.0.ct_eq(&other.0)
        }
    }

    fn compare(one: &[u8; 32], other: &[u8; 32]) -> (bool, usize) {
        COMPARED.set(0);
        let counted = |bytes: &[u8; 32]| bytes.map(Counted);
        (all_equal(&counted(one), &counted(other)), COMPARED.get())
    }

    /// Promises: T4.
    #[test]
    fn t4_every_byte_of_two_digests_is_compared_wherever_they_differ() {
        let right = *KeyDigest::of("isolet_0123").bytes();
        assert_eq!(compare(&right, &right), (true, 32));
        for at in 0..32 {
            let mut wrong = right;
            wrong[at] ^= 1;
            assert_eq!(compare(&right, &wrong), (false, 32), "they differ at byte {at}");
        }
        assert_eq!(compare(&right, &right.map(|byte| !byte)), (false, 32));
    }

    /// Promises: T4.
    #[test]
    fn t4_a_nearly_right_key_has_a_digest_as_far_as_any() {
        let right = KeyDigest::of("isolet_0123456789abcdef");
        let near = KeyDigest::of("isolet_0123456789abcdee");
        assert_ne!(right, near);
        let pairs = right.bytes().iter().zip(near.bytes());
        let differing: u32 = pairs.map(|(one, other)| (one ^ other).count_ones()).sum();
        assert!((64..=192).contains(&differing), "{differing} of 256 bits differ");
    }
}
