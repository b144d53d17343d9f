//! The machine id of a sandbox that starts with the files of another one.

use crate::agent_client::agent_version::AgentAddress;
use crate::agent_client::text_file::{fetch, save};
use crate::model::error::Error;
use std::time::Duration;
use tokio::time::timeout;

/// The file that programs read; see machine-id(5).
const PATH: &str = "/etc/machine-id";
/// The length of an id: 128 bits as hexadecimal digits.
const DIGITS: usize = 32;
/// Maximum size of the file, in bytes. A larger one is no machine id.
const BYTES_MAX: usize = 64;
/// Timeout of the change.
const WAIT: Duration = Duration::from_secs(10);

/// Gives a sandbox another machine id if it has one. A file that the sandbox's user may not write
/// stays unchanged.
pub(crate) async fn renew(agent: AgentAddress<'_>) -> Result<(), Error> {
    let work = async {
        match fetch(agent, PATH, BYTES_MAX).await? {
            Some(text) if is_id(text.trim_end()) => {
                save(agent, PATH, format!("{}\n", random()).as_bytes()).await
            }
            // `uninitialized`, or empty: the next boot of a system sets it.
            _ => Ok(()),
        }
    };
    timeout(WAIT, work).await.map_err(|_| Error::TooLate("the machine id"))?
}

fn is_id(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A random id in the format of a UUID of version 4, as machine-id(5) asks for.
fn random() -> String {
    let mut bytes = [0_u8; DIGITS / 2];
    getrandom::fill(&mut bytes).expect("random bytes");
    let id = u128::from_be_bytes(bytes);
    let version = 4_u128 << 76;
    let variant = 2_u128 << 62;
    let id = id & !(0xf_u128 << 76) & !(3_u128 << 62) | version | variant;
    format!("{id:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_random_and_of_version_4() {
        let one = random();
        assert!(is_id(&one), "{one}");
        assert_eq!(&one[12..13], "4");
        assert!("89ab".contains(&one[16..17]), "{one}");
        assert_ne!(one, random());
        for other in ["", "uninitialized", "0123", &"x".repeat(DIGITS)] {
            assert!(!is_id(other), "{other}");
        }
    }
}
