//! E2B's settings of the network as rules and credentials of this server.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::e2b::body::null_as_default;
use crate::foundation::error::ApiError;
use crate::routes::sandboxes::network::{self, NetworkBody, NetworkMode, RulesBody};
use isolet_sandbox::{CredentialSpec, Network};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// E2B's name of all addresses. `::/0` is a rule like any other: all addresses of IPv6.
const ALL: &str = "0.0.0.0/0";
/// Everything, as a rule of this server.
const EVERYTHING: &str = "*";

/// The settings of the network of a sandbox.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Egress {
    /// Of updates; a create has it beside the other settings.
    #[serde(rename = "allow_internet_access")]
    pub(super) internet: Option<bool>,
    #[serde(deserialize_with = "null_as_default")]
    allow_out: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    deny_out: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    rules: BTreeMap<String, Vec<HostRule>>,
    egress_proxy: Option<Value>,
    mask_request_host: Option<Value>,
    https_ports: Option<Value>,
    dns_servers: Option<Value>,
}

/// What happens to requests to one host.
#[derive(Default, Deserialize)]
#[serde(default)]
struct HostRule {
    #[serde(deserialize_with = "null_as_default")]
    transform: Transform,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Transform {
    #[serde(deserialize_with = "null_as_default")]
    headers: BTreeMap<String, String>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

impl Egress {
    /// Refuses what this server does not have.
    pub(super) fn check(&self) -> Result<(), ApiError> {
        let is_set = |value: &Option<Value>| match value {
            None | Some(Value::Null) => false,
            Some(Value::Array(all)) => !all.is_empty(),
            Some(_) => true,
        };
        let refused = [
            (&self.egress_proxy, "egressProxy", "connections leave through this server alone"),
            (&self.mask_request_host, "maskRequestHost", "requests keep the host of the client"),
            (&self.https_ports, "httpsPorts", "ports of a sandbox are reached by plain HTTP"),
            (&self.dns_servers, "dnsServers", "this server resolves the names of hosts"),
        ];
        for (value, name, reason) in refused {
            if is_set(value) {
                return Err(ApiError::field_not_implemented(&format!("network.{name}"), reason));
            }
        }
        let mut transforms = self.rules.values().flatten().map(|rule| &rule.transform);
        if let Some(name) = transforms.find_map(|one| one.others.keys().next()) {
            let name: String = name.chars().take(64).collect();
            let name = format!("network.rules.transform.{name}");
            return Err(ApiError::field_not_implemented(&name, "only headers are set"));
        }
        Ok(())
    }

    /// The rules; `None` where the client asks for nothing.
    ///
    /// What `allowOut` names is allowed, and all else is not if it names something, or if `denyOut`
    /// names everything.
    fn wish(&self) -> Option<NetworkBody> {
        let closed = self.internet == Some(false);
        let denies_all = self.deny_out.iter().any(|rule| rule == ALL);
        if !self.allow_out.is_empty() || denies_all {
            let deny = if denies_all { Vec::new() } else { self.deny_out.clone() };
            let allow = self.allow_out.iter().map(|rule| everything(rule)).collect();
            return Some(NetworkBody::Rules(RulesBody { allow, deny }));
        }
        if closed {
            return Some(NetworkBody::Mode(NetworkMode::None));
        }
        if self.deny_out.is_empty() {
            return self.internet.map(|_| NetworkBody::Mode(NetworkMode::Open));
        }
        let allow = vec![EVERYTHING.to_owned()];
        Some(NetworkBody::Rules(RulesBody { allow, deny: self.deny_out.clone() }))
    }

    /// The network of a new sandbox; `None` for the one that the server gives it.
    pub(super) async fn of_new(
        &self,
        app: &App,
        caller: &Caller,
    ) -> Result<Option<Network>, ApiError> {
        let wish = match self.wish() {
            // What a sandbox may reach by default is the server's decision.
            Some(NetworkBody::Mode(NetworkMode::Open)) => None,
            wish => wish,
        };
        network::wanted(app, caller, wish, None).await
    }

    /// The network that replaces that of a sandbox.
    pub(super) async fn of_update(
        &self,
        app: &App,
        caller: &Caller,
    ) -> Result<Option<Network>, ApiError> {
        let wish = self.wish().unwrap_or(NetworkBody::Mode(NetworkMode::Open));
        network::wanted(app, caller, Some(wish), None).await
    }

    /// The headers that the server sets in requests.
    pub(super) fn credentials(&self) -> Result<Vec<CredentialSpec>, ApiError> {
        let mut all = Vec::new();
        for (host, rules) in &self.rules {
            for (header, value) in rules.iter().flat_map(|rule| &rule.transform.headers) {
                all.push(CredentialSpec::new(host, Some(header.clone()), None, value.clone())?);
            }
        }
        Ok(all)
    }
}

fn everything(rule: &str) -> String {
    if rule == ALL { EVERYTHING.to_owned() } else { rule.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wish(settings: Value) -> Option<NetworkBody> {
        serde_json::from_value::<Egress>(settings).unwrap().wish()
    }

    fn rules(allow: &[&str], deny: &[&str]) -> Option<NetworkBody> {
        let body = json!({"allow": allow, "deny": deny});
        Some(NetworkBody::Rules(serde_json::from_value(body).unwrap()))
    }

    #[test]
    fn settings_become_rules() {
        assert_eq!(wish(json!({})), None);
        assert_eq!(wish(json!({"allowOut": null, "denyOut": []})), None);
        assert_eq!(wish(json!({"denyOut": ["0.0.0.0/0"]})), rules(&[], &[]));
        let allowed = json!({"denyOut": ["0.0.0.0/0", "8.8.8.8"], "allowOut": ["1.1.1.1"]});
        assert_eq!(wish(allowed), rules(&["1.1.1.1"], &[]));
        assert_eq!(wish(json!({"denyOut": ["::/0", "0.0.0.0/0"]})), rules(&[], &[]));
        // Without the addresses of IPv4 it closes those of IPv6 alone.
        assert_eq!(wish(json!({"denyOut": ["::/0"]})), rules(&["*"], &["::/0"]));
        assert_eq!(wish(json!({"allowOut": ["::/0"]})), rules(&["::/0"], &[]));
        assert_eq!(wish(json!({"denyOut": ["8.8.8.8"]})), rules(&["*"], &["8.8.8.8"]));
        assert_eq!(wish(json!({"allowOut": ["0.0.0.0/0"]})), rules(&["*"], &[]));
        assert_eq!(wish(json!({"allowOut": ["a.example"]})), rules(&["a.example"], &[]));
        let mode = |mode| Some(NetworkBody::Mode(mode));
        assert_eq!(wish(json!({"allow_internet_access": false})), mode(NetworkMode::None));
        assert_eq!(wish(json!({"allow_internet_access": true})), mode(NetworkMode::Open));
    }

    #[test]
    fn headers_become_credentials_and_other_transforms_are_refused() {
        let of = |rule: Value| {
            let settings = json!({"rules": {"a.example": [{"transform": rule}]}});
            serde_json::from_value::<Egress>(settings).unwrap()
        };
        let all = of(json!({"headers": {"X-Key": "secret"}}));
        all.check().unwrap();
        let all = all.credentials().unwrap();
        assert_eq!((all.len(), all[0].credential.host.as_str()), (1, "a.example"));
        assert!(of(json!({"body": "x"})).check().is_err());
        let check = |settings: Value| serde_json::from_value::<Egress>(settings).unwrap().check();
        assert!(check(json!({"maskRequestHost": "a:1"})).is_err());
        assert!(check(json!({"httpsPorts": [3000]})).is_err());
        assert!(check(json!({"dnsServers": ["1.1.1.1"]})).is_err());
        check(json!({"httpsPorts": [], "dnsServers": [], "egressProxy": null})).unwrap();
    }
}
