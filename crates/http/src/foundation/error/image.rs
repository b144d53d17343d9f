//! Errors of images as error responses.

use axum::http::StatusCode;
use isolet_sandbox::image;

/// Status, code and hint for errors of images. A registry's refusals are never 401, which would
/// make a client suspect its own key.
pub(super) fn classify_image(error: &image::Error) -> (StatusCode, &'static str, &'static str) {
    use StatusCode as S;
    use image::Error as E;
    match error {
        E::Reference(_) => (
            S::BAD_REQUEST,
            "bad_image",
            "use \"host\", or a name as docker has it: registry/path:tag",
        ),
        E::NotHere(_) => (
            S::NOT_FOUND,
            "no_image",
            "pull it with POST /v1/images/pull, import it, or use \"host\"",
        ),
        E::NotFound { .. } => {
            (S::NOT_FOUND, "no_image", "check name and tag; \"host\" needs no registry")
        }
        E::Denied { .. } => (
            S::FORBIDDEN,
            "image_denied",
            "check the name; whoever runs this server gives it credentials for the registry",
        ),
        E::NotAsked { .. } => (
            S::FORBIDDEN,
            "registry_not_asked",
            "whoever runs this server names the registry in [images] registries",
        ),
        E::Registry { .. } => {
            (S::BAD_GATEWAY, "registry_failed", "try again; layers that came are kept")
        }
        E::TooLate { .. } => {
            (S::GATEWAY_TIMEOUT, "registry_slow", "try again: layers that came are kept")
        }
        E::TooLarge { .. } => (
            S::PAYLOAD_TOO_LARGE,
            "image_too_large",
            "use a smaller image, or have the limits in [images] raised",
        ),
        E::Busy { .. } => {
            (S::TOO_MANY_REQUESTS, "too_many_imports", "wait until one has ended, then try again")
        }
        E::Bad(_) => (
            S::UNPROCESSABLE_ENTITY,
            "bad_image",
            "the message says what of the image or its archive is to be changed",
        ),
        E::Unnamed => (
            S::UNPROCESSABLE_ENTITY,
            "no_name",
            "say which name it gets: `isolet image import --name NAME`, or ?name=NAME",
        ),
        E::Lacks(_) => (
            S::NOT_IMPLEMENTED,
            "image_needs_more",
            "whoever runs this server must provide what is missing",
        ),
        E::InUse(_) => {
            (S::CONFLICT, "image_in_use", "delete the sandboxes that are made of it first")
        }
        E::LayerGone { .. } => (
            S::CONFLICT,
            "image_gone",
            "pull the image again by its digest (image_resolved), or import it again, then go on; \
             deleting works",
        ),
        E::ImportGone { .. } => {
            (S::CONFLICT, "image_gone", "import the image again under this name, then go on")
        }
        E::Full => (
            S::INSUFFICIENT_STORAGE,
            "no_space",
            "delete images or sandboxes, or free space on the server's disk",
        ),
        E::Disk(_) => (S::INTERNAL_SERVER_ERROR, "images_failed", "look at the server's log"),
    }
}
