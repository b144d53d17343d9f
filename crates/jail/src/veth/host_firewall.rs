//! Whether the host's own firewall lets through what is forwarded for sandboxes: a chain of another
//! that drops it goes before everything that tables of ours say.

use super::nft;
use super::policy::HOST_END;
use serde::Deserialize;
use std::path::Path;

/// What `nft -j` says of chains; only what counts here.
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
    fn closes(&self) -> bool {
        self.hook.as_deref() == Some("forward")
            && self.policy.as_deref() == Some("drop")
            && matches!(self.family.as_str(), "ip" | "inet")
    }

    /// What lets sandboxes' packets through.
    fn opened_by(&self, all: &[Chain]) -> String {
        let within = |name: &str| {
            all.iter().any(|one| {
                one.name == name && (&one.table, &one.family) == (&self.table, &self.family)
            })
        };
        // Tables of `iptables` are kept by that alone; Docker leaves this chain to others.
        let iptables = (self.family.as_str(), self.table.as_str(), self.name.as_str());
        if iptables == ("ip", "filter", "FORWARD") {
            let chain = if within("DOCKER-USER") { "DOCKER-USER" } else { "FORWARD" };
            return ["-i", "-o"]
                .map(|way| format!("iptables -I {chain} {way} {HOST_END} -j ACCEPT"))
                .join("; ");
        }
        let place = format!("{} {} {}", self.family, self.table, self.name);
        ["iifname", "oifname"]
            .map(|way| format!("nft insert rule {place} {way} {HOST_END} accept"))
            .join("; ")
    }
}

/// Chains of this host that drop what is forwarded and say nothing of our link, each with what
/// opens it. Chains that `iptables-legacy` has made are not seen.
pub(crate) fn closing(nft: &Path) -> Vec<String> {
    let Some(text) = nft::said(nft, &["-j", "list", "chains"]) else { return Vec::new() };
    let Ok(listing) = serde_json::from_str::<Listing>(&text) else { return Vec::new() };
    let all: Vec<Chain> = listing.nftables.into_iter().filter_map(|item| item.chain).collect();
    let closing = all.iter().filter(|chain| chain.closes());
    let knows = |chain: &&Chain| {
        let table = nft::said(nft, &["list", "table", &chain.family, &chain.table]);
        !table.is_some_and(|table| table.contains(HOST_END))
    };
    let told = |chain: &Chain| {
        format!(
            "the firewall's chain {} (table {} {}) drops what is forwarded for sandboxes, whatever their rules say; let it through: {}",
            chain.name,
            chain.family,
            chain.table,
            chain.opened_by(&all)
        )
    };
    closing.filter(knows).map(told).collect()
}
