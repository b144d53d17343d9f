//! Paths inside a sandbox, by their text only: no file is looked at.

/// A path, absolute and without `.`, `..` and empty parts. A relative one begins in the directory `from`;
/// `..` at the root stays there.
#[must_use]
pub fn absolute_path(from: &str, path: &str) -> String {
    let before = if path.starts_with('/') { "" } else { from };
    let mut parts = Vec::new();
    for part in before.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_begins_in_the_directory_and_none_leads_above_the_root() {
        assert_eq!(absolute_path("/home/user", "a/../b"), "/home/user/b");
        assert_eq!(absolute_path("/home/user", "/app/"), "/app");
        assert_eq!(absolute_path("/a/", "./b//c"), "/a/b/c");
        assert_eq!(absolute_path("/", ".."), "/");
        assert_eq!(absolute_path("/a", "../../../b"), "/b");
    }
}
