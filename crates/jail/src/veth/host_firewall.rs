//! Checks whether the host's own firewall forwards the packets of sandboxes. A chain of another
//! program that drops them overrides our tables.

use super::addresses::HOST_UPLINK;
use super::nft;
use serde::Deserialize;
use std::path::Path;

/// The part of the output of `nft -j list chains` that this module uses.
#[derive(Deserialize)]
struct Listing {
    nftables: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    chain: Option<Chain>,
}

#[derive(Deserialize)]
struct Chain {
    family: String,
    table: String,
    name: String,
    hook: Option<String>,
    policy: Option<String>,
}

impl Chain {
    fn drops_forwarded(&self) -> bool {
        self.hook.as_deref() == Some("forward")
            && self.policy.as_deref() == Some("drop")
            && matches!(self.family.as_str(), "ip" | "inet")
    }

    /// The commands that let the packets of sandboxes through.
    fn remedy(&self, all: &[Chain]) -> String {
        let has_chain = |name: &str| {
            all.iter().any(|one| {
                one.name == name && (&one.table, &one.family) == (&self.table, &self.family)
            })
        };
        // Only `iptables` may change its own tables; Docker reserves the chain DOCKER-USER for
        // users.
        let iptables = (self.family.as_str(), self.table.as_str(), self.name.as_str());
        if iptables == ("ip", "filter", "FORWARD") {
            let chain = if has_chain("DOCKER-USER") { "DOCKER-USER" } else { "FORWARD" };
            return ["-i", "-o"]
                .map(|direction| format!("iptables -I {chain} {direction} {HOST_UPLINK} -j ACCEPT"))
                .join("; ");
        }
        let place = format!("{} {} {}", self.family, self.table, self.name);
        ["iifname", "oifname"]
            .map(|direction| format!("nft insert rule {place} {direction} {HOST_UPLINK} accept"))
            .join("; ")
    }
}

/// A warning for each chain that drops forwarded packets without an exception for our interface,
/// with the commands that allow them. Chains of `iptables-legacy` are not detected.
pub(crate) fn warnings(nft: &Path) -> Vec<String> {
    let Some(text) = nft::output(nft, &["-j", "list", "chains"]) else { return Vec::new() };
    let Ok(listing) = serde_json::from_str::<Listing>(&text) else { return Vec::new() };
    let all: Vec<Chain> = listing.nftables.into_iter().filter_map(|item| item.chain).collect();
    let dropping = all.iter().filter(|chain| chain.drops_forwarded());
    let lacks_exception = |chain: &&Chain| {
        let table = nft::output(nft, &["list", "table", &chain.family, &chain.table]);
        !table.is_some_and(|table| table.contains(HOST_UPLINK))
    };
    let warning = |chain: &Chain| {
        format!(
            "the firewall's chain {} (table {} {}) drops the forwarded packets of sandboxes, whatever their rules say; allow them with: {}",
            chain.name,
            chain.family,
            chain.table,
            chain.remedy(&all)
        )
    };
    dropping.filter(lacks_exception).map(warning).collect()
}
