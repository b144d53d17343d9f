//! Corrects schemas that utoipa derives.

use utoipa::openapi::{
    OpenApi, RefOr, Schema, Type,
    schema::{AdditionalProperties, ArrayItems, Object, OneOf, SchemaType},
};

/// Corrects every schema of the document.
///
/// - Removes defaults. utoipa takes them from `Default`, where they only stand for a field that is
///   left out: some are not valid for the field, and generators make fields with a default
///   required.
/// - Describes a field that may be `null` itself, and not only its other alternative.
/// - Lets objects without known fields have any. Generators otherwise allow none.
pub(super) fn correct(document: &mut OpenApi) {
    let components = document.components.get_or_insert_default();
    components.schemas.values_mut().for_each(visit);
}

fn visit(schema: &mut RefOr<Schema>) {
    let schema = match schema {
        RefOr::Ref(reference) => {
            reference.default = None;
            return;
        }
        RefOr::T(schema) => schema,
    };
    match schema {
        Schema::Array(array) => {
            array.default = None;
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                visit(items);
            }
        }
        Schema::Object(object) => visit_object(object),
        Schema::OneOf(one) => {
            one.default = None;
            one.items.iter_mut().for_each(visit);
            describe(one);
        }
        Schema::AllOf(all) => {
            all.default = None;
            all.items.iter_mut().for_each(visit);
        }
        Schema::AnyOf(any) => {
            any.default = None;
            any.items.iter_mut().for_each(visit);
        }
        _ => {}
    }
}

/// Moves the description of an alternative to the field.
fn describe(one: &mut OneOf) {
    if one.description.is_some() {
        return;
    }
    let mut references = one.items.iter_mut().filter_map(|item| match item {
        RefOr::Ref(reference) => Some(&mut reference.description),
        RefOr::T(_) => None,
    });
    let described = references.find(|description| !description.is_empty());
    one.description = described.map(std::mem::take);
}

fn visit_object(object: &mut Object) {
    object.default = None;
    object.properties.values_mut().for_each(visit);
    let is_object = object.schema_type == SchemaType::Type(Type::Object);
    match object.additional_properties.as_deref_mut() {
        Some(AdditionalProperties::RefOr(values)) => visit(values),
        None if is_object && object.properties.is_empty() => {
            object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(true)));
        }
        _ => {}
    }
}
