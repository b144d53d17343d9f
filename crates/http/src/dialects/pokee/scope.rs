//! Checks whether a path lies within a session's scope. This only makes the error message helpful:
//! the kernel enforces the scope, and paths outside do not exist for the session.

use crate::foundation::error::ApiError;
use crate::routes::sessions::view::FileAccessView;
use axum::http::StatusCode;

/// What a request does with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// Reads or lists it.
    Reading,
    /// Writes or removes it.
    Writing,
}

impl FileAccessView {
    /// Returns 403 for a path outside the scope of the session `id`, and for a path that is
    /// absolute or contains `..`.
    pub(super) fn admit(&self, id: &str, path: &[u8], purpose: For) -> Result<(), ApiError> {
        let within = parts(path).is_some_and(|path| self.holds(id, &path, purpose));
        within.then_some(()).ok_or_else(|| {
            let message = "Path outside session scope, or invalid file path";
            let hint = "use a path below the workspace that is in the session's file_access";
            ApiError::new(StatusCode::FORBIDDEN, "outside_scope", message, hint)
        })
    }

    fn holds(&self, id: &str, path: &[&[u8]], purpose: For) -> bool {
        let own = format!(".sessions/{id}");
        let granted = self.write.iter().chain([&own]);
        // Writing implies reading.
        let read = self.read.iter().filter(|_| purpose == For::Reading);
        granted.chain(read).filter_map(|one| parts(one.as_bytes())).any(|granted| {
            // The directories above a granted path exist, with nothing in them but the granted
            // path.
            path.starts_with(&granted) || purpose == For::Reading && granted.starts_with(path)
        })
    }
}

/// The names in a path; `None` when it is absolute or contains `..`.
fn parts(path: &[u8]) -> Option<Vec<&[u8]>> {
    let all = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let all: Vec<_> = all.collect();
    (!path.starts_with(b"/") && !all.contains(&&b".."[..])).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(read: &[&str], write: &[&str]) -> FileAccessView {
        let all = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect();
        FileAccessView { read: all(read), write: all(write) }
    }

    #[test]
    fn a_path_is_within_what_was_granted_or_on_the_way_to_it() {
        let some = scope(&["projects/mine", "shared/"], &["projects/mine/out"]);
        let may = |path: &str, purpose| some.admit("sess_1", path.as_bytes(), purpose).is_ok();
        for path in ["projects/mine", "projects/mine/a", "shared/./x", "projects", "", ".sessions"]
        {
            assert!(may(path, For::Reading) && !may(path, For::Writing), "{path}");
        }
        for path in ["projects/mine/out", "projects//mine/out/a/b", ".sessions/sess_1/log"] {
            assert!(may(path, For::Reading) && may(path, For::Writing), "{path}");
        }
        for path in ["projects/min", "projects/mine2", "other", ".sessions/sess_2", "share"] {
            assert!(!may(path, For::Reading) && !may(path, For::Writing), "{path}");
        }
    }

    #[test]
    fn no_path_goes_up_or_begins_at_the_root() {
        let all = FileAccessView::from(None);
        for path in ["..", "a/../b", "a/..", "/etc/passwd", "/workspace/a", "//a"] {
            let refused = all.admit("s", path.as_bytes(), For::Reading).unwrap_err();
            assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{path}");
        }
        for path in ["", ".", "a..b", "..a", "...", "a/", "\u{1f980}"] {
            assert!(all.admit("s", path.as_bytes(), For::Writing).is_ok(), "{path}");
        }
    }
}
