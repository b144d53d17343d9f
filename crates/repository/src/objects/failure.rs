//! Errors of the store as errors of the repository, without anything that could be a secret: no URL
//! (Azure signs them), and no text of the store's answer (S3 repeats what was signed).

use crate::error::Error;

/// Maximum length of a cause, in characters.
const CAUSE_CHARACTERS_MAX: usize = 120;

pub(super) fn failed(error: object_store::Error) -> Error {
    match error {
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => Error::Denied,
        object_store::Error::NotFound { .. } => {
            Error::Store("the bucket, the container or the object does not exist".into())
        }
        other => Error::Store(cause(&other)),
    }
}

fn cause(error: &object_store::Error) -> String {
    let whole = error.to_string();
    if let Some((_, rest)) = whole.split_once("status code: ") {
        let status: String = rest.chars().take_while(char::is_ascii_digit).take(3).collect();
        return format!("it answered with status {status}");
    }
    if whole.contains("error response: ") {
        return "it answered with an error".to_owned();
    }
    let mut innermost: &dyn std::error::Error = error;
    // The chain of causes is short; the limit only makes sure that this ends.
    for _ in 0..16 {
        match innermost.source() {
            Some(source) => innermost = source,
            None => break,
        }
    }
    let text = innermost.to_string();
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let plain: String = plain.take(CAUSE_CHARACTERS_MAX).collect();
    match plain.contains("://") {
        true => "the request failed".to_owned(),
        false => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_urls_nor_texts_of_the_store_are_repeated() {
        let of = |text: &str| {
            let source = std::io::Error::other(text.to_owned()).into();
            failed(object_store::Error::Generic { store: "S3", source }).to_string()
        };
        let said = of(
            "Error performing PUT https://a/b?sig=SECRET in 1s - Server returned non-2xx status code: 503 Slow Down: <Error>SECRET",
        );
        assert_eq!(said, "the store failed: it answered with status 503");
        assert_eq!(of("GET https://a/b?sig=SECRET"), "the store failed: the request failed");
        assert_eq!(of("connection\nrefused"), "the store failed: connection refused");
    }
}
