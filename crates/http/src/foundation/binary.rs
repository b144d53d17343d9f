//! How the OpenAPI document describes a body of raw bytes.

use utoipa::openapi::{KnownFormat, Object, ObjectBuilder, RefOr, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

/// Raw bytes. `Vec<u8>` would be described as an array of numbers.
pub(crate) enum Binary {}

impl PartialSchema for Binary {
    fn schema() -> RefOr<Schema> {
        let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
        let bytes: Object =
            ObjectBuilder::new().schema_type(Type::String).format(Some(format)).build();
        bytes.into()
    }
}

impl ToSchema for Binary {}
