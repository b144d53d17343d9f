//! Links whose token the client chose. The token of the URL names what it is for, so that every node
//! of a fleet finds the owner of the sandbox, and a client can write the URL itself:
//!
//! ```text
//! ~TENANT~SANDBOX~PORT~CHOSEN
//! ```
//!
//! Tokens of signed links never begin with `~`, and ids never contain it.

use crate::auth::caller::Caller;
use crate::auth::port_link::{Purpose, SignedLink, since_epoch};
use crate::proxy::target::parse_port;
use isolet_sandbox::exposed_ports::link_token::LinkToken;
use isolet_sandbox::{SandboxId, Service, TenantId};

/// Separates the parts, and begins the token.
const MARK: char = '~';

/// What the token of a URL says. It grants nothing before it is verified.
#[derive(Debug)]
struct Claim {
    tenant: TenantId,
    sandbox: SandboxId,
    port: u16,
    chosen: LinkToken,
}

impl Claim {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(MARK)?.split(MARK);
        let tenant = TenantId::parse(parts.next()?).ok()?;
        let sandbox = SandboxId::parse(parts.next()?).ok()?;
        let digits = parts.next()?;
        let port = parse_port(digits).ok().filter(|port| port.to_string() == digits)?;
        let chosen = LinkToken::parse(parts.next()?).ok()?;
        parts.next().is_none().then_some(Self { tenant, sandbox, port, chosen })
    }

    fn link(self, key: Option<String>, expires_s: u64) -> SignedLink {
        let Self { tenant, sandbox, port, .. } = self;
        let caller = Caller { tenant, read_only: false, key, ticket_scope: None, forwarded: false };
        SignedLink { purpose: Purpose::Program, caller, sandbox, port, expires_s }
    }
}

/// The token of a URL.
pub(crate) fn text(
    tenant: &TenantId,
    sandbox: &SandboxId,
    port: u16,
    chosen: &LinkToken,
) -> String {
    let chosen = chosen.as_str();
    format!("{MARK}{tenant}{MARK}{sandbox}{MARK}{port}{MARK}{chosen}")
}

/// Whether a token has the form of one that a client has chosen.
pub(crate) fn is_chosen(text: &str) -> bool {
    text.starts_with(MARK)
}

/// What the token of a URL says, before it is verified.
pub(crate) fn unverified(text: &str) -> Option<SignedLink> {
    Some(Claim::parse(text)?.link(None, 0))
}

/// Checks the token of a URL, and returns what it grants access to now.
pub(crate) fn verify(service: &Service, text: &str) -> Option<SignedLink> {
    let claim = Claim::parse(text)?;
    let (_, all) = service.exposed(&claim.tenant, &claim.sandbox).ok()?;
    let stored = all.get(&claim.port)?.find_token(&claim.chosen)?.clone();
    let is_valid = |key: &str| service.keys().is_valid(key).unwrap_or(false);
    let held = stored.key.as_deref().is_none_or(is_valid);
    (held && stored.expires_s > since_epoch().as_secs())
        .then(|| claim.link(stored.key, stored.expires_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: O14.
    #[test]
    fn a_token_is_read_back_as_it_was_written_and_in_one_form_only() {
        let tenant = TenantId::parse("team.a").unwrap();
        let sandbox = SandboxId::parse("de-mo_1.x").unwrap();
        let chosen = LinkToken::parse("chosen-token_0123").unwrap();
        let whole = text(&tenant, &sandbox, 8080, &chosen);
        assert_eq!(whole, "~team.a~de-mo_1.x~8080~chosen-token_0123");
        let link = unverified(&whole).unwrap();
        assert_eq!((&link.caller.tenant, &link.sandbox, link.port), (&tenant, &sandbox, 8080));
        assert_eq!(link.expires_s, 0, "it grants nothing");
        for bad in [
            "",
            "~",
            "~team.a~de-mo~8080",
            "~team.a~de-mo~8080~short",
            "~team.a~de-mo~0~chosen-token_0123",
            "~team.a~de-mo~080~chosen-token_0123",
            "~team.a~de-mo~65536~chosen-token_0123",
            "~team.a~~80~chosen-token_0123",
            "~team.a~de-mo~80~chosen-token_0123~",
            "team.a~de-mo~80~chosen-token_0123",
        ] {
            assert!(unverified(bad).is_none(), "{bad}");
        }
    }
}
