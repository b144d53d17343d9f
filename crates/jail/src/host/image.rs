//! The `host` image: the host's programs, without any of its data.
//!
//! `/usr` of the host is a layer. Everything else is a synthetic tree: empty directories, accounts,
//! and from the host's `/etc` and `/var` only the names below.

use isolet_wire::network::{HOSTS, RESOLVER};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// Files from the host's `/etc` that programs of its `/usr` need to start. None of them holds data.
const ETC: &[&str] = &[
    "R",
    "adduser.conf",
    "alternatives",
    "bash.bashrc",
    "bindresvport.blacklist",
    "ca-certificates",
    "ca-certificates.conf",
    "debian_version",
    "default/useradd",
    "deluser.conf",
    "dpkg",
    "gai.conf",
    "inputrc",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "login.defs",
    "magic",
    "magic.mime",
    "matplotlibrc",
    "mime.types",
    "nsswitch.conf",
    "pam.conf",
    "pam.d",
    "perl",
    "profile",
    "protocols",
    "python3",
    "python3.11",
    "python3.12",
    "python3.13",
    "rpc",
    "security",
    "services",
    "shells",
    "skel",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "vim",
    "xattr.conf",
];

/// Directories from the host's `/var`: the package database.
const VAR: &[&str] =
    &["lib/dpkg/info", "lib/dpkg/status", "lib/dpkg/alternatives", "lib/dpkg/triggers"];

/// Further directories, with their modes.
const DIRECTORIES: &[(&str, u32)] = &[
    ("etc", 0o755),
    ("etc/default", 0o755),
    ("etc/isolet", 0o755),
    ("etc/ssl", 0o755),
    ("home", 0o755),
    ("home/user", 0o755),
    ("root", 0o700),
    ("tmp", 0o1777),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/cache/apt", 0o755),
    ("var/cache/apt/archives", 0o755),
    ("var/cache/apt/archives/partial", 0o755),
    ("var/lib", 0o755),
    ("var/lib/apt", 0o755),
    ("var/lib/apt/lists", 0o755),
    ("var/lib/apt/lists/partial", 0o755),
    ("var/lib/dpkg", 0o755),
    ("var/lib/dpkg/updates", 0o755),
    ("var/log", 0o755),
    ("var/log/apt", 0o755),
    ("var/mail", 0o755),
    ("var/spool", 0o755),
    ("var/tmp", 0o1777),
    ("dev", 0o755),
    ("proc", 0o555),
    ("sys", 0o555),
    ("usr", 0o755),
    ("workspace", 0o755),
    ("mnt", 0o755),
    ("media", 0o755),
    ("opt", 0o755),
    ("srv", 0o755),
];

const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\nbin:x:2:2:bin:/bin:/usr/sbin/nologin\n\
sys:x:3:3:sys:/dev:/usr/sbin/nologin\nsync:x:4:65534:sync:/bin:/bin/sync\n\
games:x:5:60:games:/usr/games:/usr/sbin/nologin\nman:x:6:12:man:/var/cache/man:/usr/sbin/nologin\n\
mail:x:8:8:mail:/var/mail:/usr/sbin/nologin\nwww-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n\
backup:x:34:34:backup:/var/backups:/usr/sbin/nologin\n_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n\
user:x:1000:1000:user:/home/user:/bin/bash\n\
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\n\
lp:x:7:\nmail:x:8:\nman:x:12:\nsudo:x:27:\nwww-data:x:33:\nbackup:x:34:\nshadow:x:42:\n\
utmp:x:43:\nvideo:x:44:\nstaff:x:50:\ngames:x:60:\nusers:x:100:\nuser:x:1000:\nnogroup:x:65534:\n";
const SHADOW: &str = "root:*:19000:0:99999:7:::\nuser:*:19000:0:99999:7:::\n";

/// The start-up file of bash in a terminal: a prompt with the directory, and colours. Shells of
/// sessions do not read it.
const BASHRC: &str = r#"# Read by bash in a terminal.
case $- in *i*) ;; *) return ;; esac
HISTCONTROL=ignoreboth
HISTSIZE=10000
HISTFILESIZE=20000
shopt -s checkwinsize histappend
case $TERM in
dumb) PS1='\u@\h:\w\$ ' ;;
*)
    PS1='\[\e]0;\u@\h: \w\a\e[1;32m\]\u@\h\[\e[0m\]:\[\e[1;34m\]\w\[\e[0m\]\$ '
    if command -v dircolors >/dev/null; then eval "$(dircolors -b)"; fi
    alias ls='ls --color=auto'
    alias grep='grep --color=auto'
    alias diff='diff --color=auto'
    ;;
esac
alias ll='ls -alF'
if [ -r /usr/share/bash-completion/bash_completion ]; then
    . /usr/share/bash-completion/bash_completion
fi
"#;
const PROFILE: &str = "if [ -n \"$BASH_VERSION\" ] && [ -r ~/.bashrc ]; then . ~/.bashrc; fi\n";
/// Increased when the content below changes, so that an older tree is not used.
const EDITION: u64 = 4;

/// Links in the root of a host whose programs all lie in `/usr`.
const USR_LINKS: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// The trees of the host's programs: everything but `/usr`, which is created if it is missing, and
/// `/usr`. Blocks.
///
/// # Errors
/// An error of the disk.
pub fn host_trees(data: &Path) -> io::Result<(PathBuf, PathBuf)> {
    Ok((create_skeleton(data)?, PathBuf::from("/usr")))
}

/// How often the tree is made while packages are being installed on the host.
const ATTEMPTS: u32 = 10;
/// The pause before the next attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// Creates the tree below `data/image`, unless one exists that still matches the host. Returns its
/// path.
pub(crate) fn create_skeleton(data: &Path) -> io::Result<PathBuf> {
    let images = data.join("image");
    settled(fingerprint, PAUSE, |fingerprint| {
        let tree = images.join(format!("host-{fingerprint}"));
        if tree.join("etc/passwd").try_exists()? {
            return Ok(tree);
        }
        fs::create_dir_all(&images)?;
        let fresh = images.join("host.new");
        isolet_sys::tree::remove(&fresh)?;
        fs::create_dir(&fresh)?;
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755))?;
        fill(&fresh)?;
        fs::rename(&fresh, &tree)?;
        Ok(tree)
    })
}

/// Makes something of the host's files. If they change while it does, because packages are being installed,
/// it is made again; the last attempt counts in any case.
fn settled<T>(
    fingerprint: impl Fn() -> String,
    pause: Duration,
    make: impl Fn(&str) -> io::Result<T>,
) -> io::Result<T> {
    for _ in 1..ATTEMPTS {
        let before = fingerprint();
        match make(&before) {
            Ok(made) if fingerprint() == before => return Ok(made),
            Ok(_) => {}
            // A file went away, or came twice, while its directory was read.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => {}
            Err(error) => return Err(error),
        }
        std::thread::sleep(pause);
    }
    make(&fingerprint())
}

/// The tree of the host below a data directory that sandboxes use; `None` before one was created.
#[must_use]
pub fn host_skeleton(data: &Path) -> Option<PathBuf> {
    let images = data.join("image");
    let current = images.join(format!("host-{}", fingerprint()));
    if current.join("etc/passwd").is_file() {
        return Some(current);
    }
    // The host has changed since the launcher was started.
    let others = fs::read_dir(&images).ok()?.flatten();
    let complete =
        others.map(|entry| entry.path()).filter(|path| path.join("etc/passwd").is_file());
    complete.max_by_key(|path| fs::metadata(path).and_then(|about| about.modified()).ok())
}

/// Whether the host's programs all lie in `/usr`.
#[must_use]
pub(crate) fn is_usr_merged() -> bool {
    ["bin", "lib"].iter().all(|name| fs::read_link(Path::new("/").join(name)).is_ok())
}

/// A fingerprint that changes when a package is installed or the linker's cache is rebuilt.
fn fingerprint() -> String {
    use std::os::unix::fs::MetadataExt;
    let sources =
        ["/etc/ld.so.cache", "/var/lib/dpkg/status", "/etc/alternatives", "/etc/ssl/certs"];
    let mut hash = EDITION;
    for source in sources {
        let time = fs::metadata(source)
            .map_or(0, |about| about.mtime() * 1_000_000_000 + about.mtime_nsec());
        hash = hash.wrapping_mul(0x0100_0000_01b3).wrapping_add(time as u64);
    }
    format!("{hash:016x}")
}

fn fill(tree: &Path) -> io::Result<()> {
    for (name, mode) in DIRECTORIES {
        fs::create_dir_all(tree.join(name))?;
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(*mode))?;
    }
    for name in USR_LINKS {
        if let Ok(target) = fs::read_link(Path::new("/").join(name)) {
            symlink(target, tree.join(name))?;
        }
    }
    symlink("/run", tree.join("var/run"))?;
    symlink("/run/lock", tree.join("var/lock"))?;
    symlink("/usr/lib/os-release", tree.join("etc/os-release"))?;
    symlink("/proc/self/mounts", tree.join("etc/mtab"))?;
    for name in ETC {
        copy_if_present(&Path::new("/etc").join(name), &tree.join("etc").join(name))?;
    }
    for name in VAR {
        copy_if_present(&Path::new("/var").join(name), &tree.join("var").join(name))?;
    }
    write(tree, "etc/passwd", PASSWD, 0o644)?;
    write(tree, "etc/group", GROUP, 0o644)?;
    write(tree, "etc/shadow", SHADOW, 0o640)?;
    write(tree, "etc/gshadow", "", 0o640)?;
    write(tree, "etc/hosts", HOSTS, 0o644)?;
    write(tree, "etc/hostname", "sandbox\n", 0o644)?;
    write(tree, "etc/resolv.conf", RESOLVER, 0o644)?;
    write(tree, "var/lib/dpkg/available", "", 0o644)?;
    for home in ["root", "home/user"] {
        write(tree, &format!("{home}/.bashrc"), BASHRC, 0o644)?;
        write(tree, &format!("{home}/.profile"), PROFILE, 0o644)?;
    }
    for name in ["home/user", "home/user/.bashrc", "home/user/.profile"] {
        std::os::unix::fs::chown(tree.join(name), Some(1000), Some(1000))?;
    }
    Ok(())
}

fn write(tree: &Path, name: &str, text: &str, mode: u32) -> io::Result<()> {
    fs::write(tree.join(name), text)?;
    fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode))
}

/// Copies a file, directory or link. A path that does not exist, or is of another type, is left
/// out.
fn copy_if_present(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(about) = fs::symlink_metadata(from) else { return Ok(()) };
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    if about.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if about.is_file() {
        return fs::copy(from, to).map(drop);
    }
    if about.is_dir() {
        fs::create_dir_all(to)?;
        fs::set_permissions(to, about.permissions())?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy_if_present(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_tree_is_made_again_while_the_host_changes() {
        let changes = Cell::new(0);
        let tries = Cell::new(0);
        let fingerprint = || changes.get().to_string();
        let made = settled(fingerprint, Duration::ZERO, |of| {
            tries.set(tries.get() + 1);
            match tries.get() {
                1 => Err(ErrorKind::NotFound.into()),
                2 => Err(ErrorKind::AlreadyExists.into()),
                3 => {
                    changes.set(1);
                    Ok(of.to_owned())
                }
                _ => Ok(of.to_owned()),
            }
        });
        assert_eq!((made.unwrap().as_str(), tries.get()), ("1", 4));
        // It ends also if the host does not come to rest, and at once with other errors.
        let always = settled(String::new, Duration::ZERO, |_| {
            tries.set(tries.get() + 1);
            io::Result::<()>::Err(ErrorKind::NotFound.into())
        });
        assert_eq!((always.unwrap_err().kind(), tries.get()), (ErrorKind::NotFound, 14));
        let full = settled(String::new, Duration::ZERO, |_| {
            io::Result::<()>::Err(ErrorKind::StorageFull.into())
        });
        assert_eq!(full.unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
