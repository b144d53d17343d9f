//! The store of snapshots, if the settings name one: its key file and options. Nothing is sent.

use super::finding::Finding;
use isolet_repository::StoreSettings;

const GROUP: &str = "snapshot store";

pub(super) fn check(settings: Option<&StoreSettings>) -> Vec<Finding> {
    let Some(settings) = settings else { return Vec::new() };
    let check = "settings";
    vec![match settings.check() {
        Ok(()) => {
            let message = format!("{}; `isolet store check` connects to it", settings.url);
            Finding::ok(GROUP, check, message)
        }
        Err(error) => Finding::failure(
            GROUP,
            check,
            error.to_string(),
            "correct the table [store], or create the key file with `isolet store init`",
        ),
    }]
}
