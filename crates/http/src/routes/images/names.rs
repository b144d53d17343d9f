//! Names of images: those that clients give, and those that the operator has configured.

use super::ImageView;
use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use crate::foundation::extensions::AuditedImage;
use crate::foundation::json::SmallJson;
use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Another name for an image.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TagImage {
    /// A name that the image has, such as `python:3.12-slim`.
    image: String,
    /// The name that it gets as well, such as `tools:1`. Another image of the caller that has this
    /// name loses it.
    name: String,
}

/// An image that got a name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaggedImage {
    /// The image, with all its names.
    #[serde(flatten)]
    image: ImageView,
    /// The name that it got, in full.
    name: String,
}

/// A name that stands for an image because the operator has configured it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ImageAlias {
    /// The name, as clients must write it.
    name: String,
    /// The image that it stands for, in full, or `host`.
    image: String,
}

/// Give an image another name
///
/// The image keeps its names. Only the caller's tenant sees the new one, and no registry is asked for
/// it when a sandbox is created. `DELETE /v1/images/{image}` removes a name. Refused with 409
/// `image_name_configured` if the operator has configured what the name stands for, and with 409
/// `too_many_names` if the image has 128 names.
#[utoipa::path(
    post, path = "/v1/images/tag", operation_id = "images_tag", tag = "images",
    request_body(content = TagImage, example = json!({"image": "python:3.12-slim", "name": "tools:1"})),
    responses(
        (status = 200, description = "The image has the name.", body = TaggedImage)
    )
)]
pub(crate) async fn tag(
    State(app): State<App>,
    caller: Caller,
    body: SmallJson<TagImage>,
) -> Result<(Extension<AuditedImage>, Json<TaggedImage>), ApiError> {
    let TagImage { image, name } = body.value;
    let complete = app.service.complete_name(&name)?;
    let image = app.service.tag_image(&caller.tenant, &image, &[name]).await?;
    let image = ImageView::of(&image, caller.tenant.as_str());
    let audited = Extension(AuditedImage(complete.clone()));
    Ok((audited, Json(TaggedImage { image, name: complete })))
}

/// List configured image names
///
/// Returns the names of images that the operator has configured, and what they stand for. Clients can
/// use them like the image itself, but not change them.
#[utoipa::path(
    get, path = "/v1/images/aliases", operation_id = "images_aliases", tag = "images",
    responses(
        (status = 200, description = "The configured names, sorted.", body = Vec<ImageAlias>, example = json!([{"name": "node:22-slim", "image": "host"}]))
    )
)]
pub(crate) async fn aliases(State(app): State<App>) -> Json<Vec<ImageAlias>> {
    let all = app.service.image_aliases();
    Json(all.into_iter().map(|(name, image)| ImageAlias { name, image }).collect())
}
