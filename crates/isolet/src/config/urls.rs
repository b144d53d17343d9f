//! URLs in settings.

use anyhow::{Result, bail};

/// Refuses a URL with a user or a password: other users may read the file, and `--print-config` shows it.
/// `instead` says where a password belongs.
///
/// # Errors
/// One that does not repeat the URL.
pub(super) fn refuse_user(setting: &str, url: &str, instead: &str) -> Result<()> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        bail!("{setting} contains a user or a password (`@`); {instead}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_no_user() {
        for good in ["", "http://a", "https://a:1/b@c", "s3://bucket/a@b", "mirror:5000/@"] {
            assert!(refuse_user("x", good, "").is_ok(), "{good}");
        }
        for bad in ["http://u:hush@a", "s3://hush@a/b", "u:hush@mirror:5000", "https://a:hush@"] {
            let refused = refuse_user("[x] y", bad, "use a file").unwrap_err().to_string();
            assert!(refused.starts_with("[x] y ") && !refused.contains("hush"), "{refused}");
        }
    }
}
