//! Serial numbers of certificates.

use rcgen::SerialNumber;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Length in bytes. X.509 allows 20.
const SERIAL_BYTES: usize = 16;

/// The random serial number of a certificate, as 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Serial([u8; SERIAL_BYTES]);

impl Serial {
    /// A new serial number.
    pub(super) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; SERIAL_BYTES];
        getrandom::fill(&mut bytes)?;
        // A positive number of full length, so that all tools print the same digits.
        bytes[0] = (bytes[0] & 0x7F) | 0x40;
        Ok(Self(bytes))
    }

    /// Parses a serial number as `isolet cluster ls` or `openssl` print it; `None` for other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|c| *c != ':').collect();
        let mut bytes = [0; SERIAL_BYTES];
        hex::decode_to_slice(digits, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    pub(super) fn to_rcgen(&self) -> SerialNumber {
        SerialNumber::from_slice(&self.0)
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl TryFrom<String> for Serial {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is not a serial number"))
    }
}

impl From<Serial> for String {
    fn from(serial: Serial) -> Self {
        serial.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_are_positive_and_read_back_in_the_forms_of_other_tools() {
        let serial = Serial::random().unwrap();
        let text = serial.to_string();
        assert!(text.len() == 32 && ('4'..='7').contains(&text.chars().next().unwrap()), "{text}");
        let pairs: Vec<&str> = (0..16).map(|at| &text[2 * at..2 * at + 2]).collect();
        let forms = [text.clone(), text.to_uppercase(), pairs.join(":")];
        assert!(forms.iter().all(|form| Serial::parse(form) == Some(serial.clone())));
        assert_eq!(Serial::parse("node-1"), None);
        assert_eq!(Serial::parse("ab"), None);
    }
}
