//! The values of settings that are on or off.

/// Parses the value of a switch such as ISOLET_LOG_JSON.
pub(crate) fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "" | "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("use 1, true, yes or on; or 0, false, no, off or nothing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_on_or_off_in_every_usual_spelling() {
        for (text, on) in [
            ("1", true),
            ("true", true),
            ("TRUE", true),
            ("yes", true),
            ("on", true),
            ("0", false),
            ("false", false),
            ("no", false),
            ("off", false),
            ("", false),
        ] {
            assert_eq!(switch(text), Ok(on), "{text:?}");
        }
        assert!(switch("json").is_err());
    }
}
