//! The events of a command in the format of Cloudflare's bridge.

use crate::foundation::error::ApiError;
use base64::{Engine, engine::general_purpose::STANDARD};
use isolet_wire::response::Exit;
use serde_json::json;

const FAILED: &str = "exec_error";

fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn error(message: &str, code: &str) -> String {
    event("error", &json!({"error": message, "code": code}).to_string())
}

/// Output of a stream.
pub(crate) fn output(name: &str, bytes: &[u8]) -> String {
    event(name, &STANDARD.encode(bytes))
}

/// The end of the command. Lost output makes it an error: `lost` bytes were no longer available.
pub(crate) fn exit(exit: &Exit, lost: u64) -> String {
    if exit.timed_out {
        let message = format!("the command was ended at its timeout (exit {})", exit.code);
        return error(&message, FAILED);
    }
    if lost > 0 {
        return error(&format!("{lost} bytes of output were not read in time"), FAILED);
    }
    event("exit", &json!({"exit_code": exit.code}).to_string())
}

/// An error.
pub(crate) fn error_event(failure: &ApiError) -> String {
    error(&failure.message, failure.code)
}
