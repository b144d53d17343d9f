//! Corrects schemas that utoipa derives.

use std::collections::BTreeMap;
use utoipa::openapi::schema::{AdditionalProperties, ArrayItems, Object, OneOf, SchemaType};
use utoipa::openapi::{OpenApi, Ref, RefOr, Schema, Type};

/// The schemas of the document by name.
type Schemas = BTreeMap<String, RefOr<Schema>>;

/// Corrects every schema of the document.
///
/// - Removes defaults. utoipa takes them from `Default`, where they only stand for a field that is
///   left out: some are not valid for the field, and generators make fields with a default
///   required.
/// - Describes a field that may be `null` itself, and not only its other alternative.
/// - Lets objects without known fields have any. Generators otherwise allow none.
/// - Puts the tag of a tagged enum into the schemas of its variants. utoipa adds it with `allOf`, which
///   generators cannot parse within `oneOf`.
pub(super) fn correct(document: &mut OpenApi) {
    let components = document.components.get_or_insert_default();
    components.schemas.values_mut().for_each(visit);
    let known = components.schemas.clone();
    let mut merged = Schemas::new();
    for schema in components.schemas.values_mut() {
        let RefOr::T(Schema::OneOf(one)) = schema else { continue };
        for variant in &mut one.items {
            if let Some((name, object)) = tagged(variant, &known) {
                *variant = RefOr::Ref(Ref::from_schema_name(&name));
                merged.insert(name, RefOr::T(Schema::Object(object)));
            }
        }
    }
    for (name, schema) in &known {
        if let Some(object) = flattened(schema, &known) {
            merged.insert(name.clone(), RefOr::T(Schema::Object(object)));
        }
    }
    components.schemas.extend(merged);
}

/// The object that stands for a struct with a flattened untagged enum: all fields of its variants are
/// optional in it. utoipa combines the two with `allOf`, which generators accept for objects only.
fn flattened(schema: &RefOr<Schema>, known: &Schemas) -> Option<Object> {
    let RefOr::T(Schema::AllOf(all)) = schema else { return None };
    let [RefOr::Ref(reference), RefOr::T(Schema::Object(own))] = &all.items[..] else {
        return None;
    };
    let name = reference.ref_location.rsplit('/').next()?;
    let RefOr::T(Schema::OneOf(variants)) = known.get(name)? else { return None };
    let mut object = own.clone();
    object.description = all.description.clone();
    for variant in &variants.items {
        if let RefOr::T(Schema::Object(fields)) = variant {
            object.properties.extend(fields.properties.clone());
        }
    }
    Some(object)
}

/// The object that a variant of a tagged enum stands for, and its name: the fields of the schema that
/// it refers to, and the tag. Each such schema belongs to one variant.
fn tagged(variant: &RefOr<Schema>, known: &Schemas) -> Option<(String, Object)> {
    let RefOr::T(Schema::AllOf(all)) = variant else { return None };
    let [RefOr::Ref(reference), RefOr::T(Schema::Object(tag))] = &all.items[..] else {
        return None;
    };
    let name = reference.ref_location.rsplit('/').next()?;
    let RefOr::T(Schema::Object(fields)) = known.get(name)? else { return None };
    let mut object = fields.clone();
    for (name, schema) in &tag.properties {
        let mut schema = schema.clone();
        if let RefOr::T(Schema::Object(tag)) = &mut schema {
            tag.description.get_or_insert_with(|| "The type of the frame.".to_owned());
        }
        object.properties.insert(name.clone(), schema);
    }
    object.required.extend(tag.required.iter().cloned());
    if !reference.description.is_empty() {
        object.description = Some(reference.description.clone());
    }
    Some((name.to_owned(), object))
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
