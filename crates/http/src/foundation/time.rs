//! Timestamps and durations in responses.

use serde::{Serialize, Serializer};

/// A duration, written as a number of milliseconds. Whole numbers have no decimal point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Millis {
    micros: u64,
}

impl Millis {
    pub(crate) fn from_micros(micros: u64) -> Self {
        Self { micros }
    }
}

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ms = ms(self.micros);
        if ms.fract() == 0.0 {
            serializer.serialize_u64(ms as u64)
        } else {
            serializer.serialize_f64(ms)
        }
    }
}

/// Converts microseconds to milliseconds.
pub(crate) fn ms(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Durations up to 71 years: those differ from their neighbours in the third decimal.
        #[test]
        fn milliseconds_are_written_without_an_exponent(
            micros in prop_oneof![0u64..1 << 51, 0u64..10_000_000, (0u64..1 << 40).prop_map(|ms| ms * 1000)]
        ) {
            let text = serde_json::to_string(&Millis::from_micros(micros)).unwrap();
            prop_assert_eq!(text, format!("{}", micros as f64 / 1000.0));
        }
    }
}
