//! Checks of environments and metadata from clients.

use crate::model::{
    error::Error,
    info::{ENV_BYTES_MAX, METADATA_BYTES_MAX},
};
use serde_json::{Map, Value};

pub(crate) fn bad(field: &'static str, reason: impl Into<String>) -> Error {
    Error::BadField { field, reason: reason.into() }
}

/// Checks that the kernel can pass this environment to a program.
pub(crate) fn check_env<'a>(env: impl Iterator<Item = (&'a String, &'a str)>) -> Result<(), Error> {
    let mut bytes = 0;
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(bad(
                "env",
                format!("{name:?} cannot be a name: not empty, without = and NUL"),
            ));
        }
        if value.contains('\0') {
            return Err(bad("env", format!("the value of {name} holds a NUL")));
        }
        bytes += name.len() + value.len() + 2;
    }
    if bytes > ENV_BYTES_MAX {
        return Err(bad("env", format!("{bytes} bytes, at most {ENV_BYTES_MAX}")));
    }
    Ok(())
}

pub(crate) fn check_metadata(metadata: &Map<String, Value>) -> Result<(), Error> {
    let bytes = serde_json::to_vec(metadata).map_or(usize::MAX, |json| json.len());
    if bytes > METADATA_BYTES_MAX {
        return Err(bad(
            "metadata",
            format!("{bytes} bytes as JSON, at most {METADATA_BYTES_MAX}"),
        ));
    }
    Ok(())
}
