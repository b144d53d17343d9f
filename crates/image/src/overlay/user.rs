//! Finds the user that an image's programs run as: `USER` of its configuration, resolved with the
//! image's `/etc/passwd` and `/etc/group`.

use crate::error::Error;
use crate::overlay::lookup::OverlayView;
use serde::{Deserialize, Serialize};

/// Maximum size of `/etc/passwd` or `/etc/group`, in bytes.
const BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The highest user or group id in a sandbox.
const ID_MAX: u32 = 65_533;

/// An account of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// User id in the sandbox.
    pub uid: u32,
    /// Group id in the sandbox.
    pub gid: u32,
    /// Login name, or the user id in decimal for a user without a name.
    pub name: String,
    /// Home directory, an absolute path.
    pub home: String,
}

impl User {
    /// The user with all rights in a sandbox.
    #[must_use]
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, name: "root".to_owned(), home: "/root".to_owned() }
    }
}

/// Resolves `name`, `uid`, `name:group` or `uid:gid`. An empty text means root.
///
/// # Errors
/// [`Error::Bad`] for a user that the image does not have, or whose id is too high for a sandbox.
pub(crate) fn of(text: &str, image: &OverlayView) -> Result<User, Error> {
    let shown: String = text.chars().take(64).collect();
    let bad = |problem: &str| Error::bad(format!("its user {shown:?} {problem}"));
    let (who, group) = match text.split_once(':') {
        Some((who, group)) => (who, Some(group).filter(|group| !group.is_empty())),
        None => (text, None),
    };
    let who = if who.is_empty() { "0" } else { who };
    let number: Option<u32> = who.parse().ok();
    let lines = |path: &str| -> Result<String, Error> {
        Ok(String::from_utf8_lossy(&image.read(path, BYTES_MAX)?.unwrap_or_default()).into_owned())
    };
    let passwd = lines("etc/passwd")?;
    let account = passwd.lines().find_map(|line| {
        let parts: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, ..] = parts[..] else { return None };
        let uid = uid.parse().ok()?;
        let gid = gid.parse().ok()?;
        let fits = number.map_or(name == who, |number| number == uid);
        fits.then(|| User { uid, gid, name: name.to_owned(), home: home.to_owned() })
    });
    let mut user = match (account, number) {
        (Some(user), _) => user,
        (None, Some(uid)) => User {
            uid,
            gid: 0,
            name: if uid == 0 { "root".to_owned() } else { uid.to_string() },
            home: if uid == 0 { "/root".to_owned() } else { "/".to_owned() },
        },
        (None, None) => return Err(bad("is not in its /etc/passwd")),
    };
    if let Some(group) = group {
        user.gid = match group.parse() {
            Ok(gid) => gid,
            Err(_) => {
                let text = lines("etc/group")?;
                let found = text.lines().find_map(|line| {
                    let parts: Vec<&str> = line.split(':').collect();
                    let [name, _, gid, ..] = parts[..] else { return None };
                    (name == group).then(|| gid.parse().ok()).flatten()
                });
                found.ok_or_else(|| bad("names a group that is not in its /etc/group"))?
            }
        };
    }
    if user.uid > ID_MAX || user.gid > ID_MAX {
        return Err(bad("has an id above 65533, the highest one in a sandbox"));
    }
    if user.name.contains('\0') || user.home.contains('\0') || !user.home.starts_with('/') {
        user.home = "/".to_owned();
    }
    Ok(user)
}
