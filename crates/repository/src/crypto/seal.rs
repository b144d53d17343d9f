//! Sealed data: compressed, encrypted, and bound to a name.
//!
//! A sealed object is a random nonce of 24 bytes and the ciphertext. The plaintext is a byte for the
//! compression, the length of the content in 4 bytes, and the content. 24 random bytes do not
//! repeat, so one key can seal any number of objects.

use crate::error::Error;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
const HEAD_BYTES: usize = 5;
/// How many bytes sealed data can be longer than its content.
pub(crate) const OVERHEAD_BYTES: usize = NONCE_BYTES + TAG_BYTES + HEAD_BYTES;
const STORED: u8 = 0;
const ZSTD: u8 = 1;
/// The default level of zstd: about 300 MB/s on one core.
const LEVEL: i32 = 3;

/// Seals and opens with one key.
pub(crate) struct Sealer {
    cipher: XChaCha20Poly1305,
}

impl Sealer {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self { cipher: XChaCha20Poly1305::new(key.into()) }
    }

    /// Compresses and seals content under a name.
    pub(crate) fn seal(&self, name: &[u8], content: &[u8]) -> Result<Vec<u8>, Error> {
        let length = u32::try_from(content.len()).map_err(Error::fault)?;
        let compressed = zstd::bulk::compress(content, LEVEL).map_err(Error::fault)?;
        let (method, body) = match compressed.len() < content.len() {
            true => (ZSTD, compressed.as_slice()),
            false => (STORED, content),
        };
        let mut plain = Vec::with_capacity(HEAD_BYTES + body.len());
        plain.push(method);
        plain.extend_from_slice(&length.to_le_bytes());
        plain.extend_from_slice(body);
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(Error::fault)?;
        let payload = Payload { msg: &plain, aad: name };
        let encrypted = self.cipher.encrypt(XNonce::from_slice(&nonce), payload);
        let encrypted = encrypted.map_err(|_| Error::fault("encryption failed"))?;
        let mut sealed = Vec::with_capacity(NONCE_BYTES + encrypted.len());
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&encrypted);
        Ok(sealed)
    }

    /// Opens what was sealed under this name. `None` if it was not sealed with this key and name,
    /// or if its content is longer than `max` bytes.
    pub(crate) fn open(&self, name: &[u8], sealed: &[u8], max: usize) -> Option<Vec<u8>> {
        let (nonce, encrypted) = sealed.split_at_checked(NONCE_BYTES)?;
        let payload = Payload { msg: encrypted, aad: name };
        let plain = self.cipher.decrypt(XNonce::from_slice(nonce), payload).ok()?;
        let (head, body) = plain.split_at_checked(HEAD_BYTES)?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > max {
            return None;
        }
        let content = match head[0] {
            STORED => body.to_vec(),
            ZSTD => zstd::bulk::decompress(body, length).ok()?,
            _ => return None,
        };
        (content.len() == length).then_some(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_and_name_open_it() {
        let sealer = Sealer::new(&[1; 32]);
        for content in [b"".to_vec(), vec![5; 100_000], (0..=255).collect()] {
            let sealed = sealer.seal(b"name", &content).unwrap();
            assert!(sealed.len() <= content.len() + OVERHEAD_BYTES);
            assert_eq!(sealer.open(b"name", &sealed, 100_000), Some(content.clone()));
            assert_eq!(sealer.open(b"other", &sealed, 100_000), None);
            assert_eq!(Sealer::new(&[2; 32]).open(b"name", &sealed, 100_000), None);
            for at in [0, NONCE_BYTES, sealed.len() - 1] {
                let mut wrong = sealed.clone();
                wrong[at] ^= 1;
                assert_eq!(sealer.open(b"name", &wrong, 100_000), None, "byte {at}");
            }
            assert_eq!(sealer.open(b"name", &sealed[..sealed.len() - 1], 100_000), None);
        }
        let sealed = sealer.seal(b"name", &[0; 1000]).unwrap();
        assert_eq!(sealer.open(b"name", &sealed, 999), None, "longer than the limit");
        assert_eq!(sealer.open(b"name", b"short", 999), None);
    }
}
