//! Packets that a namespace loses, by rules of nftables in a table of its own.

use crate::namespace::NetworkNamespace;
use std::net::Ipv4Addr;

/// Which packets are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutDirection {
    /// Those in both directions.
    Both,
    /// Those that the namespace sends.
    Outgoing,
    /// Those that the namespace receives.
    Incoming,
}

/// A cut between a namespace and some addresses. Packets vanish without an answer, on open connections
/// too. It ends when it is dropped.
#[derive(Debug)]
pub struct Cut<'a> {
    namespace: &'a NetworkNamespace,
    table: String,
}

impl<'a> Cut<'a> {
    /// Cuts a namespace off from addresses. `name` tells several cuts of a namespace apart.
    ///
    /// # Panics
    /// When nft refuses the rules.
    #[must_use]
    pub fn new(
        namespace: &'a NetworkNamespace,
        name: &str,
        addresses: &[Ipv4Addr],
        direction: CutDirection,
    ) -> Self {
        let table = format!("cut_{name}");
        namespace.nft(&rules(&table, addresses, direction));
        Self { namespace, table }
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        let mut delete = self.namespace.command("nft");
        let _ = delete.args(["delete", "table", "inet", &self.table]).output();
    }
}

fn rules(table: &str, addresses: &[Ipv4Addr], direction: CutDirection) -> String {
    let list: Vec<String> = addresses.iter().map(Ipv4Addr::to_string).collect();
    let list = list.join(", ");
    let chain = |hook: &str, field: &str| {
        format!(
            "chain {hook} {{\ntype filter hook {hook} priority -250;\nip {field} {{ {list} }} drop\n}}\n"
        )
    };
    let mut chains = String::new();
    if direction != CutDirection::Incoming {
        chains.push_str(&chain("output", "daddr"));
    }
    if direction != CutDirection::Outgoing {
        chains.push_str(&chain("input", "saddr"));
    }
    format!("table inet {table} {{\n{chains}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_one_way_cut_drops_one_direction() {
        let to = [Ipv4Addr::new(10, 0, 0, 1)];
        let outgoing = rules("t", &to, CutDirection::Outgoing);
        assert!(outgoing.contains("ip daddr { 10.0.0.1 } drop") && !outgoing.contains("saddr"));
        let incoming = rules("t", &to, CutDirection::Incoming);
        assert!(incoming.contains("ip saddr { 10.0.0.1 } drop") && !incoming.contains("daddr"));
    }
}
