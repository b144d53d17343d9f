//! Protocol detection and ClientHello parsing hold for any bytes.

use crate::servers::Certificates;
use isolet_egress_proxy::proxy::client_hello::{ClientHello, parse};
use isolet_egress_proxy::proxy::protocol::{Protocol, detect};
use proptest::prelude::*;

fn hello(certificates: &Certificates, name: &str) -> Vec<u8> {
    crate::tls::hello(certificates, name)
}

/// Promises: R2.
#[test]
fn a_hello_is_read_when_it_is_whole_and_not_before() {
    let certificates = Certificates::new(&["a.example"]);
    let whole = hello(&certificates, "Some.Host.example");
    for length in 0..whole.len() {
        assert_eq!(parse(&whole[..length]), Ok(None), "{length} bytes");
    }
    let name = Some("some.host.example".to_owned());
    assert_eq!(parse(&whole), Ok(Some(ClientHello { server_name: name, may_hide_name: false })));
    let without_name = parse(&hello(&certificates, "192.0.2.1"));
    assert_eq!(without_name, Ok(Some(ClientHello { server_name: None, may_hide_name: false })));
    let mut early = whole.clone();
    early.extend_from_slice(&[0x17, 3, 3, 0, 1, 0]);
    assert!(parse(&early).is_ok_and(|it| it.is_some()), "bytes may follow the ClientHello");
}

proptest! {
    /// Promises: R2.
    #[test]
    fn no_bytes_are_too_much_for_a_reader(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = parse(&bytes);
        let mut record = vec![0x16, 3, 1, 2, 0];
        record.extend_from_slice(&bytes);
        let _ = parse(&record);
        // A decision does not change when more bytes come.
        for length in 0..bytes.len() {
            for strict in [false, true] {
                let before = detect(&bytes[..length], strict);
                if before != Protocol::Undecided {
                    prop_assert_eq!(before, detect(&bytes, strict));
                }
            }
        }
    }

    #[test]
    fn a_hello_with_a_wrong_byte_names_no_other_host(at in 0_usize..10_000, byte in any::<u8>()) {
        let certificates = CERTIFICATES.get_or_init(|| Certificates::new(&["a.example"]));
        let mut bytes = hello(certificates, "good.example");
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(Some(ClientHello { server_name: Some(name), .. })) = parse(&bytes) {
            let other = name.bytes().zip(*b"good.example").filter(|(one, other)| one != other);
            prop_assert!(name.len() == 12 && other.count() <= 1, "{}", name);
        }
    }
}

static CERTIFICATES: std::sync::OnceLock<Certificates> = std::sync::OnceLock::new();
