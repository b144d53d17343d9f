//! Reads one variant of an enum whose `type` names the variant.
//!
//! `serde` reads such an enum through a copy of the whole object, since the type may come last. The
//! copy costs memory, and its errors do not name the field. Frames are short enough to be read
//! twice instead: once for the type, once for the fields.

use crate::foundation::error::ApiError;
use crate::foundation::json::parse;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

const TYPE: &str = "type";

/// Parses the fields of one variant, whose type is known. The error names the field.
pub(crate) fn parse_variant<T: DeserializeOwned>(text: &[u8]) -> Result<T, ApiError> {
    parse::<WithoutType<T>>(text).map(|fields| fields.0)
}

/// An object, read without its `type`.
struct WithoutType<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for WithoutType<T> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = WithoutType<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<WithoutType<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(SkipType { fields })).map(WithoutType)
    }
}

/// The fields of an object but `type`.
struct SkipType<A> {
    fields: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for SkipType<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        loop {
            let Some(name) = self.fields.next_key::<String>()? else { return Ok(None) };
            if name != TYPE {
                let name = serde::de::value::StringDeserializer::new(name);
                return seed.deserialize(name).map(Some);
            }
            self.fields.next_value::<IgnoredAny>()?;
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.fields.next_value_seed(seed)
    }
}
