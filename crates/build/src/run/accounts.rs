//! The user of a step, as `/etc/passwd` and `/etc/group` in the sandbox say.

use super::BuildRun;
use crate::recipe::{Accounts, without_group};
use isolet_sandbox::{Error, Sandbox};
use isolet_wire::request::ByteRange;
use isolet_wire::response::RefusalReason;

/// Maximum size of `/etc/passwd` or `/etc/group`, in bytes.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// The highest id in a sandbox.
const ID_MAX: u32 = 65_533;

/// A user with its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) name: String,
    pub(super) home: String,
}

impl Account {
    pub(super) fn root() -> Self {
        Self { uid: 0, gid: 0, name: "root".to_owned(), home: "/root".to_owned() }
    }
}

impl BuildRun<'_> {
    /// The account that a step names: `user` or `user:group`, each by name or number.
    pub(super) async fn account(&self, sandbox: &Sandbox, text: &str) -> Result<Account, String> {
        if let Accounts::Root(homes) = &self.recipe.accounts {
            let name = without_group(text);
            let home = homes.get(name).cloned();
            let home = home.ok_or_else(|| format!("there is no user {name:?}"))?;
            return Ok(Account { name: name.to_owned(), home, ..Account::root() });
        }
        if matches!(text, "root" | "0" | "0:0" | "root:root") {
            return Ok(Account::root());
        }
        let passwd = read(sandbox, "/etc/passwd").await?;
        let group = read(sandbox, "/etc/group").await?;
        find(text, &passwd, &group)
    }
}

async fn read(sandbox: &Sandbox, path: &str) -> Result<String, String> {
    let range = ByteRange::From { offset: 0, limit: Some(BYTES_MAX as u64) };
    let mut reader = match sandbox.file_read(path.as_bytes(), range).await {
        Err(Error::Refused { reason: RefusalReason::NotFound, .. }) => return Ok(String::new()),
        reader => reader.map_err(|error| error.to_string())?,
    };
    let mut bytes = Vec::new();
    while let Some(part) = reader.next().await.map_err(|error| error.to_string())? {
        bytes.extend_from_slice(&part);
        if bytes.len() > BYTES_MAX {
            return Err(format!("{path} is larger than 4 MiB"));
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn find(text: &str, passwd: &str, group: &str) -> Result<Account, String> {
    let (user, own_group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
        None => (text, None),
    };
    let number: Option<u32> = user.parse().ok();
    let found = passwd.lines().find_map(|line| {
        let parts: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, ..] = parts[..] else { return None };
        let uid: u32 = uid.parse().ok()?;
        let gid: u32 = gid.parse().ok()?;
        let fits = number.map_or(name == user, |number| number == uid);
        fits.then(|| Account { uid, gid, name: name.to_owned(), home: home.to_owned() })
    });
    let unnamed =
        number.map(|uid| Account { uid, gid: 0, name: uid.to_string(), home: "/".to_owned() });
    let unknown = || format!("there is no user {user:?} in /etc/passwd of the image");
    let mut account = found.or(unnamed).ok_or_else(unknown)?;
    if let Some(name) = own_group {
        let found = group.lines().find_map(|line| {
            let parts: Vec<&str> = line.split(':').collect();
            let [own, _, gid, ..] = parts[..] else { return None };
            (own == name).then(|| gid.parse().ok()).flatten()
        });
        let gid = name.parse().ok().or(found);
        account.gid =
            gid.ok_or_else(|| format!("there is no group {name:?} in /etc/group of the image"))?;
    }
    if account.uid > ID_MAX || account.gid > ID_MAX {
        return Err(format!("{text:?} has an id above {ID_MAX}, the highest one in a sandbox"));
    }
    Ok(account)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nstaff:x:50:\n";

    fn ids(text: &str) -> Result<(u32, u32, String), String> {
        let account = find(text, PASSWD, GROUP)?;
        Ok((account.uid, account.gid, account.home))
    }

    #[test]
    fn users_and_groups_are_found_by_name_and_number() {
        for (text, uid, gid, home) in [
            ("node", 1000, 1000, "/home/node"),
            ("1000", 1000, 1000, "/home/node"),
            ("node:staff", 1000, 50, "/home/node"),
            ("node:7", 1000, 7, "/home/node"),
            ("node:", 1000, 1000, "/home/node"),
            ("500", 500, 0, "/"),
        ] {
            assert_eq!(ids(text).unwrap(), (uid, gid, home.to_owned()), "{text}");
        }
        for (text, word) in [("mish", "mish"), ("node:none", "none"), ("70000", "65533")] {
            assert!(ids(text).unwrap_err().contains(word), "{text}");
        }
    }
}
