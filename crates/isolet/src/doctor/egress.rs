//! Tries out the packet filter of networks. Sandboxes without a network work without it.

use super::finding::Finding;
use isolet_jail::probe;
use isolet_sandbox::network::NetworkSettings;

const GROUP: &str = "networks";

pub(super) fn check(settings: &NetworkSettings, is_root: bool) -> Vec<Finding> {
    let mut all = vec![packet_filter()];
    let range = settings.range;
    all.push(match probe::range_is_free(range) {
        Ok(true) => Finding::ok(GROUP, "address range", format!("{range}/16 is free")),
        Ok(false) => Finding::failure(
            GROUP,
            "address range",
            format!("this machine has routes into {range}/16, which sandboxes use"),
            "set `range` in [network] to another private /16 network",
        ),
        Err(errno) => Finding::unchecked(
            GROUP,
            "address range",
            &format!("routes cannot be listed ({errno})"),
            "run `ip route`",
        ),
    });
    if !is_root {
        all.push(Finding::needs_root(GROUP, "firewall"));
        return all;
    }
    let warnings = probe::firewall_warnings();
    if warnings.is_empty() {
        all.push(Finding::ok(
            GROUP,
            "firewall",
            "no chain of another program drops forwarded packets",
        ));
    }
    all.extend(warnings.into_iter().map(|warning| {
        let (problem, remedy) = warning.split_once("; ").unwrap_or((warning.as_str(), ""));
        Finding::failure(GROUP, "firewall", problem, remedy)
    }));
    all
}

fn packet_filter() -> Finding {
    match probe::packet_filter() {
        Ok(()) => Finding::ok(GROUP, "nftables", "the tables of the gateway are loaded"),
        Err(error) => Finding::failure(
            GROUP,
            "nftables",
            format!("sandboxes get no network: {error}"),
            "install the package nftables; modprobe nf_tables nft_ct nft_masq nft_redir nft_log",
        ),
    }
}
