//! The requirements that the launcher checks at every start, and the programs of Isolet.

use super::finding::Finding;
use isolet_jail::{CONTROL_GROUPS, Requirement, requirements};
use isolet_sandbox::Config;
use std::path::Path;

const GROUP: &str = "host";

/// Requirements that a probe tries out; only what they lack is reported here.
const PROBED: [&str; 4] = ["user namespaces", "overlay", "seccomp", CONTROL_GROUPS];

pub(super) fn check(config: &Config) -> Vec<Finding> {
    let mut all: Vec<Finding> = requirements().into_iter().filter_map(finding).collect();
    all.push(programs(config));
    all
}

fn finding(Requirement { name, result }: Requirement) -> Option<Finding> {
    match result {
        Ok(_) if PROBED.contains(&name) => None,
        Ok(found) => Some(Finding::ok(GROUP, name, found)),
        Err(lack) => Some(Finding::failure(GROUP, name, lack.problem, lack.remedy)),
    }
}

fn programs(config: &Config) -> Finding {
    let proxy = config.launcher.with_file_name("isolet-egress-proxy");
    let all = [config.launcher.as_path(), config.agent.as_path(), proxy.as_path()];
    let missing = all.into_iter().find(|path| !is_program(path));
    match missing {
        None => Finding::ok(GROUP, "programs", "launcher, agent and egress proxy"),
        Some(path) => Finding::failure(
            GROUP,
            "programs",
            format!("{} is missing or cannot be executed", path.display()),
            "install all programs of this version in the directory of `isolet`",
        ),
    }
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
