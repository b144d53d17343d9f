//! Errors of images as error responses.

use axum::http::StatusCode;
use isolet_sandbox::image;

/// Status, code and hint of an image error. A refusal by a registry never becomes 401, because a
/// client would suspect its own key.
pub(super) fn classify_image(error: &image::Error) -> (StatusCode, &'static str, &'static str) {
    use StatusCode as S;
    use image::Error as E;
    match error {
        E::Reference(_) => (
            S::BAD_REQUEST,
            "bad_image",
            "use \"host\" or a Docker image reference: registry/path:tag",
        ),
        E::NotHere(_) => (
            S::NOT_FOUND,
            "no_image",
            "pull it with POST /v1/images/pull, import it, or use \"host\"",
        ),
        E::NotFound { .. } => {
            (S::NOT_FOUND, "no_image", "check the name and the tag; \"host\" needs no registry")
        }
        E::Denied { .. } => (
            S::FORBIDDEN,
            "image_denied",
            "check the name, or ask the operator of this server to add credentials for the registry",
        ),
        E::NotAsked { .. } => (
            S::FORBIDDEN,
            "registry_not_asked",
            "ask the operator of this server to add the registry to `registries` in [images]",
        ),
        E::Registry { .. } => {
            (S::BAD_GATEWAY, "registry_failed", "retry; layers that were downloaded are reused")
        }
        E::TooLate { .. } => {
            (S::GATEWAY_TIMEOUT, "registry_slow", "retry; layers that were downloaded are reused")
        }
        E::TooLarge { .. } => (
            S::PAYLOAD_TOO_LARGE,
            "image_too_large",
            "use a smaller image, or ask the operator of this server to raise the limits in [images]",
        ),
        E::Busy { .. } => {
            (S::TOO_MANY_REQUESTS, "too_many_imports", "wait until an import has ended, then retry")
        }
        E::Bad(_) => (
            S::UNPROCESSABLE_ENTITY,
            "bad_image",
            "the message says which part of the image or archive is invalid",
        ),
        E::Unnamed => (
            S::UNPROCESSABLE_ENTITY,
            "no_name",
            "choose a name with `isolet image import --name NAME` or ?name=NAME",
        ),
        E::Lacks(_) => (
            S::NOT_IMPLEMENTED,
            "image_needs_more",
            "ask the operator of this server to install what is missing",
        ),
        E::TooManyNames { .. } => (
            S::CONFLICT,
            "too_many_names",
            "remove one of its names with DELETE /v1/images/{image} or `isolet image rm`",
        ),
        E::InUse(_) => (S::CONFLICT, "image_in_use", "delete the sandboxes that use it first"),
        E::NotCopied { .. } => (
            S::SERVICE_UNAVAILABLE,
            "image_not_copied",
            "retry; if it fails again, ask the operator whether the node is down",
        ),
        E::LayerGone { .. } => (
            S::CONFLICT,
            "image_gone",
            "pull the image again by its digest (image_resolved) or import it again, then retry; \
             deleting the sandbox still works",
        ),
        E::ImportGone { .. } => (
            S::CONFLICT,
            "image_gone",
            "import the image again under this name, or pull it under its own name if it was tagged, then retry",
        ),
        E::QuotaExceeded { .. } => (
            S::INSUFFICIENT_STORAGE,
            "quota_exceeded",
            "remove images with DELETE /v1/images/{image} or `isolet image rm`, or ask the operator of this server to raise the quota",
        ),
        E::Full => (
            S::INSUFFICIENT_STORAGE,
            "no_space",
            "delete images or sandboxes, or free space on the server's disk",
        ),
        E::Disk(_) => (S::INTERNAL_SERVER_ERROR, "images_failed", "see the server's log"),
    }
}
