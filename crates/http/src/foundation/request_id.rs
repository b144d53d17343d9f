//! The id of a request: in the response, in the log, and in its trace.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The header of requests and responses.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id that is accepted from a client, in bytes.
const BYTES_MAX: usize = 128;

tokio::task_local! {
    static CURRENT: RequestId;
}

/// An id of at most 128 bytes: letters, digits and `-_.:/+=@`.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    /// The client's id if it has the right form, or a new one.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut given = headers.get_all(REQUEST_ID).iter();
        match given.next().filter(|id| given.next().is_none() && is_id(id.as_bytes())) {
            Some(id) => Self(id.clone()),
            None => Self::fresh(),
        }
    }

    /// The keyed hash of a number: no system call for each request, and a client cannot see from its
    /// ids how many requests others send.
    fn fresh() -> Self {
        static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let [high, low] = KEYS.each_ref().map(|key| key.hash_one(number));
        let text = format!("{high:016x}{low:016x}");
        Self(HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("unknown")))
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    pub(crate) fn into_header(self) -> HeaderValue {
        self.0
    }

    /// Runs a future in which [`current_request_id`] returns this id.
    pub(crate) async fn scope<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }
}

fn is_id(bytes: &[u8]) -> bool {
    let letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
    (1..=BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(letter)
}

/// The id of the request that this task answers; `None` outside of requests.
#[must_use]
pub fn current_request_id() -> Option<String> {
    CURRENT.try_with(|id| id.as_str().to_owned()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(REQUEST_ID, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        RequestId::of(&headers).as_str().to_owned()
    }

    #[test]
    fn an_id_of_a_client_is_accepted_if_a_log_can_show_it() {
        let longest = "x".repeat(BYTES_MAX);
        for id in ["a", "3f-9_.:/+=@Z", &longest] {
            assert_eq!(of(&[id]), id);
        }
        let too_long = "x".repeat(BYTES_MAX + 1);
        for id in ["", "a b", "a\"b", "a\tb", "ü", &too_long] {
            assert_ne!(of(&[id]), id);
        }
        assert!(!["a", "b"].contains(&of(&["a", "b"]).as_str()), "two ids are none");
    }

    #[test]
    fn new_ids_differ() {
        assert_ne!(of(&[]), of(&[]));
        assert!(is_id(of(&[]).as_bytes()));
        // No part of an id counts the requests.
        let numbers: Vec<u128> =
            (0..64).map(|_| u128::from_str_radix(&of(&[]), 16).unwrap()).collect();
        for two in numbers.windows(2) {
            let halves = |of: fn(u128) -> u64| of(two[1]).abs_diff(of(two[0]));
            assert!(halves(|id| (id >> 64) as u64) > 1 << 20, "{two:032x?}");
            assert!(halves(|id| id as u64) > 1 << 20, "{two:032x?}");
        }
    }

    #[tokio::test]
    async fn the_current_id_is_known_within_its_request() {
        let id = RequestId(HeaderValue::from_static("r-1"));
        assert_eq!(id.scope(async { current_request_id() }).await.as_deref(), Some("r-1"));
        assert_eq!(current_request_id(), None);
    }
}
