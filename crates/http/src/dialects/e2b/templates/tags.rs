//! Tags of templates, each a name of an image.

use super::catalog::{TemplateName, build_id, missing, template};
use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::body::Lenient;
use crate::dialects::e2b::error::E2bError;
use crate::foundation::error::ApiError;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use isolet_clock::rfc3339;
use serde::{Deserialize, Serialize};

/// Maximum number of tags in one call.
const TAGS_MAX: usize = 32;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AssignBody {
    target: String,
    tags: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct AssignedTags {
    tags: Vec<String>,
    #[serde(rename = "buildID")]
    build_id: String,
}

fn all(name: &TemplateName, tags: &[String]) -> Result<Vec<TemplateName>, ApiError> {
    if tags.is_empty() || tags.len() > TAGS_MAX {
        return Err(ApiError::bad_field("tags", "1 to 32 tags"));
    }
    tags.iter().map(|tag| name.with_tag(tag)).collect()
}

/// Gives a template more tags.
pub(super) async fn assign(
    State(app): State<App>,
    caller: Caller,
    Lenient { value, .. }: Lenient<AssignBody>,
) -> Result<(StatusCode, Json<AssignedTags>), E2bError> {
    let target = TemplateName::parse(&value.target)?;
    let tags = all(&target, &value.tags)?;
    let names: Vec<String> = tags.iter().map(TemplateName::text).collect();
    let known = template(&app, &caller, &value.target)?;
    if !known.tags.contains_key(&target.tag) {
        return Err(missing(&value.target).into());
    }
    let image = app.service.tag_image(&caller.tenant, &target.text(), &names).await?;
    let answer = AssignedTags { tags: value.tags, build_id: build_id(&image) };
    Ok((StatusCode::CREATED, Json(answer)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RemoveBody {
    name: String,
    tags: Vec<String>,
}

/// Removes tags. The image goes with its last one.
pub(super) async fn remove(
    State(app): State<App>,
    caller: Caller,
    Lenient { value, .. }: Lenient<RemoveBody>,
) -> Result<StatusCode, E2bError> {
    let name = TemplateName::parse(&value.name)?;
    let tags = all(&name, &value.tags)?;
    let known = template(&app, &caller, &value.name)?;
    for tag in &tags {
        if !known.tags.contains_key(&tag.tag) {
            return Err(missing(&tag.text()).into());
        }
    }
    for tag in tags {
        app.service.remove_image(&caller.tenant, &tag.text()).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TagView {
    tag: String,
    #[serde(rename = "buildID")]
    build_id: String,
    created_at: String,
}

/// Lists the tags of a template.
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<Json<Vec<TagView>>, E2bError> {
    let found = template(&app, &caller, &text)?;
    let tags = found.tags.iter().map(|(tag, image)| TagView {
        tag: tag.clone(),
        build_id: build_id(image),
        created_at: rfc3339(image.pulled_at_ms),
    });
    Ok(Json(tags.collect()))
}
