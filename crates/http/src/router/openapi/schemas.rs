//! Corrects schemas that utoipa derives from types whose fields all have a default.

use utoipa::openapi::{
    OpenApi, RefOr, Schema,
    schema::{AdditionalProperties, ArrayItems},
};

/// Removes defaults that say nothing: `null` for a field that may be left out but not be `null`,
/// and any default of a required field.
pub(super) fn correct(document: &mut OpenApi) {
    let components = document.components.get_or_insert_default();
    components.schemas.values_mut().for_each(visit);
}

fn visit(schema: &mut RefOr<Schema>) {
    let RefOr::T(schema) = schema else { return };
    clear_default(schema, false);
    match schema {
        Schema::Array(array) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                visit(items);
            }
        }
        Schema::Object(object) => {
            for (name, property) in &mut object.properties {
                visit(property);
                if let (RefOr::T(property), true) = (property, object.required.contains(name)) {
                    clear_default(property, true);
                }
            }
            if let Some(AdditionalProperties::RefOr(values)) =
                object.additional_properties.as_deref_mut()
            {
                visit(values);
            }
        }
        Schema::OneOf(one) => one.items.iter_mut().for_each(visit),
        Schema::AllOf(all) => all.items.iter_mut().for_each(visit),
        Schema::AnyOf(any) => any.items.iter_mut().for_each(visit),
        _ => {}
    }
}

fn clear_default(schema: &mut Schema, whatever_it_is: bool) {
    let default = match schema {
        Schema::Array(array) => &mut array.default,
        Schema::Object(object) => &mut object.default,
        Schema::OneOf(one) => &mut one.default,
        Schema::AllOf(all) => &mut all.default,
        Schema::AnyOf(any) => &mut any.default,
        _ => return,
    };
    if whatever_it_is || default.as_ref().is_some_and(serde_json::Value::is_null) {
        *default = None;
    }
}
