//! Network traffic that a sandbox was denied, as responses contain it and as a change of its
//! network accepts it back.

use isolet_sandbox::{Denied, Refused};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Network traffic that was denied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = DeniedTraffic)]
pub(crate) struct DeniedView {
    /// The host name if it is known, otherwise the address.
    #[schema(required = true)]
    host: String,
    /// The port. `null` for DNS lookups and for protocols without ports.
    #[schema(required = true)]
    port: Option<u16>,
    /// `tcp`, `udp`, `icmp`, `dns`, or the number of an IP protocol.
    #[schema(required = true)]
    protocol: String,
    /// Why it was denied: the rule in `deny`; `default` if no rule allows it; otherwise why it is
    /// closed to every sandbox (`host`, `private`, `link-local`, `metadata`, …).
    #[schema(required = true)]
    rule: String,
    /// How often it was denied.
    #[schema(required = true)]
    times: u32,
}

impl From<Refused> for DeniedView {
    fn from(refused: Refused) -> Self {
        let Refused { host, port, protocol, rule, times } = refused;
        Self { host, port, protocol, rule, times }
    }
}

impl From<DeniedView> for Refused {
    fn from(view: DeniedView) -> Self {
        let DeniedView { host, port, protocol, rule, times } = view;
        Self { host, port, protocol, rule, times }
    }
}

pub(crate) fn views(denied: Denied) -> Vec<DeniedView> {
    denied.list.into_iter().map(DeniedView::from).collect()
}

/// The denied traffic as JSON fields, each with a comma before it; empty when there is none.
pub(crate) fn fields(denied: &Denied) -> String {
    if denied == &Denied::default() {
        return String::new();
    }
    let list = serde_json::to_string(&views(denied.clone())).unwrap_or_else(|_| "[]".to_owned());
    let lost = match denied.lost {
        0 => String::new(),
        lost => format!(",\"denied_lost\":{lost}"),
    };
    format!(",\"denied\":{list}{lost}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn refused(host: &str) -> Refused {
        let protocol = "tcp".to_owned();
        let rule = "default".to_owned();
        Refused { host: host.to_owned(), port: Some(443), protocol, rule, times: 2 }
    }

    #[test]
    fn denied_traffic_is_only_written_if_there_is_some() {
        assert_eq!(fields(&Denied::default()), "");
        let denied = Denied { list: vec![refused("a\"b")], lost: 3 };
        let json: Value = serde_json::from_str(&format!("{{\"a\":0{}}}", fields(&denied))).unwrap();
        let told =
            json!({"host": "a\"b", "port": 443, "protocol": "tcp", "rule": "default", "times": 2});
        assert_eq!((&json["denied"], &json["denied_lost"]), (&json!([told]), &json!(3)));
        let back: DeniedView = serde_json::from_value(told).unwrap();
        assert_eq!(Refused::from(back), refused("a\"b"));
    }
}
