//! The key `log`: what the log contains.

use crate::logging;
use anyhow::Result;

/// The filter of the log: of a flag or ISOLET_LOG, of RUST_LOG, of the file, or the default.
///
/// # Errors
/// When it is malformed. A malformed RUST_LOG is ignored, because it may be meant for other programs.
pub(super) fn filter(given: Option<String>, of_file: Option<String>) -> Result<String> {
    let is_set = |filter: &String| !filter.is_empty();
    let of_rust = || std::env::var("RUST_LOG").ok().filter(|it| logging::is_valid(it));
    let given = given.filter(is_set);
    let of_file = of_file.filter(is_set);
    for filter in given.iter().chain(&of_file) {
        logging::check(filter)?;
    }
    let chosen = given.or_else(|| of_rust().filter(is_set)).or(of_file);
    Ok(chosen.unwrap_or_else(|| logging::DEFAULT_FILTER.to_owned()))
}
