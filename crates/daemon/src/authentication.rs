//! Authenticates clients by what they present: a certificate, a token, or the header of a trusted gateway.
//!
//! Whatever proves an identity first counts. Why nothing did is logged and told to nobody: who has proved nothing learns
//! nothing. Tokens are never logged, and never kept but as digests.

mod bearer;
mod caller;
mod forwarded;
mod join;
mod jwt;
mod kubernetes;
mod oidc;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::http::HeaderMap;
use canopus_base::spiffe::Identity;
use canopus_engine::Engine;
use canopus_identity::token::TokenIssuer;
use canopus_mesh::world::Settings;
use canopus_runtime::flags::{
    AUDIENCE, Flags, JWT_RULE, TOKEN_AUDIENCES, TOKEN_ISSUER, TRUSTED_GATEWAY_CIDR, XDS_AUTH,
};
use canopus_sources::kubernetes::{Cluster, RemoteRegistry, TokenOwner};
use tracing::{info, warn};

pub use self::bearer::Door;
pub use self::caller::Caller;
use self::forwarded::Gateways;
use self::join::JoinTokens;
use self::kubernetes::KubernetesTokens;
use self::oidc::{IssuedTokens, Rule};
use crate::debug::Authenticator;

/// Whether a token is signed by one of the keys of a set, a JSON Web Key Set. That makes it genuine, not yet valid.
pub fn is_signed(token: &str, keys: &str) -> bool {
    let keys = jwt::Key::read_set(keys).unwrap_or_default();
    jwt::Jwt::parse(token).is_ok_and(|token| token.is_signed_by_any(&keys))
}

/// What a client presents.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// Where it connected from.
    pub address: Option<SocketAddr>,
    /// The identities of its certificate, which was verified in the handshake.
    pub certified: &'a [String],
    /// The headers of its request.
    pub headers: &'a HeaderMap,
    /// How it came.
    pub door: Door,
}

/// The clusters whose service accounts have tokens.
pub struct TokenClusters {
    /// The API server of the own cluster.
    pub cluster: Cluster,
    /// The name of the own cluster.
    pub name: Arc<str>,
    /// Names of clusters by the aliases that stand for them.
    pub aliases: BTreeMap<String, Arc<str>>,
    /// The remote clusters.
    pub remote: RemoteRegistry,
}

/// Why authentication failed; for the log alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct Unproven(Vec<String>);

/// What a client has proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// SPIFFE identities that the proof establishes.
    pub identities: Vec<String>,
    /// The owner of the token that proved them, if one did.
    pub owner: Option<TokenOwner>,
}

/// Finds out who clients are.
pub struct Authenticators {
    engine: Engine,
    /// Whether clients over HTTP can prove anything at all.
    over_http: bool,
    issued: Vec<IssuedTokens>,
    join: Option<JoinTokens>,
    kubernetes: Option<KubernetesTokens>,
    gateways: Option<Gateways>,
}

impl Authenticators {
    /// Believes certificates alone. The identities of service accounts are those of the mesh in `engine`.
    pub fn certificates(engine: Engine) -> Self {
        Self { engine, over_http: true, issued: Vec::new(), join: None, kubernetes: None, gateways: None }
    }

    /// Believes what flags say: tokens of the issuer of `JWT_RULE`, those of a cluster's service accounts, and gateways.
    ///
    /// Without a cluster, tokens of `TOKEN_ISSUER` take the place of its own.
    pub fn new(engine: Engine, flags: &Flags, cluster: Option<TokenClusters>) -> anyhow::Result<Self> {
        let mut authenticators = Self::certificates(engine);
        authenticators.over_http = flags.get(XDS_AUTH);
        let rule = flags.get(JWT_RULE);
        if !rule.is_empty() {
            let rule = Rule::parse(rule).context("JWT_RULE")?;
            info!(issuer = rule.issuer, "tokens of an outside issuer are accepted");
            authenticators.issued.push(IssuedTokens::new(rule, flags));
        }
        let issuer = flags.get(TOKEN_ISSUER);
        match cluster {
            Some(cluster) => {
                let audiences = flags.get(TOKEN_AUDIENCES).to_vec();
                authenticators.kubernetes = Some(KubernetesTokens::new(cluster, audiences));
            }
            None if !issuer.is_empty() => {
                let audiences = match flags.get(AUDIENCE) {
                    "" => flags.get(TOKEN_AUDIENCES).to_vec(),
                    audience => vec![audience.to_owned()],
                };
                info!(issuer, "there is no cluster: tokens are checked by the keys of TOKEN_ISSUER");
                authenticators.issued.push(IssuedTokens::new(Rule::for_issuer(issuer, audiences), flags));
            }
            None if authenticators.issued.is_empty() => info!(
                "there is neither a cluster nor a JWT_RULE nor a TOKEN_ISSUER: of tokens, only join tokens of this \
                 control plane's own authority are accepted"
            ),
            None => {}
        }
        let trusted = flags.get(TRUSTED_GATEWAY_CIDR);
        authenticators.gateways = (!trusted.is_empty()).then(|| Gateways::new(trusted));
        Ok(authenticators)
    }

    /// Believes join tokens of this issuer as well.
    #[must_use]
    pub fn with_join_tokens(self, issuer: Arc<TokenIssuer>) -> Self {
        Self { join: Some(JoinTokens::new(issuer)), ..self }
    }

    /// The identities a client proves, by the first way that proves any.
    pub async fn identities(&self, presented: &Presented<'_>) -> Result<Vec<String>, Unproven> {
        self.prove(presented).await.map(|proof| proof.identities)
    }

    /// What a client proves, by the first way that proves anything.
    pub async fn prove(&self, presented: &Presented<'_>) -> Result<Proof, Unproven> {
        let by_other_means = |identities| Proof { identities, owner: None };
        if !presented.certified.is_empty() {
            return Ok(by_other_means(presented.certified.to_vec()));
        }
        let mut reasons = vec!["there is no client certificate".to_owned()];
        match bearer::token(presented.headers, presented.door) {
            Ok(token) => match self.owner(token, presented, &mut reasons).await {
                Some(owner) => match self.identity(&owner) {
                    Ok(identity) => {
                        return Ok(Proof { identities: vec![identity.to_string()], owner: Some(owner) });
                    }
                    Err(error) => reasons.push(error.to_string()),
                },
                None if reasons.len() == 1 => reasons.push("no tokens are accepted".to_owned()),
                None => {}
            },
            Err(error) => reasons.push(error.to_string()),
        }
        if let Some(gateways) = &self.gateways {
            match gateways.identities(presented.address, presented.headers) {
                Ok(identities) => return Ok(by_other_means(identities)),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(Unproven(reasons))
    }

    /// The owner of a token, or else why it has none.
    async fn owner(
        &self,
        token: &str,
        presented: &Presented<'_>,
        reasons: &mut Vec<String>,
    ) -> Option<TokenOwner> {
        if let Some(join) = self.join.as_ref().filter(|join| join.is_own(token)) {
            // Only this control plane has the key of join tokens, so no other authenticator is asked.
            return match join.owner(token, presented.door) {
                Ok(owner) => Some(owner),
                Err(reason) => {
                    reasons.push(format!("join token: {reason}"));
                    None
                }
            };
        }
        for issued in &self.issued {
            match issued.owner(token).await {
                Ok(owner) => return Some(owner),
                Err(error) => reasons.push(format!("token of {}: {error}", issued.issuer())),
            }
        }
        let address = presented.address.map(|address| address.ip());
        match self.kubernetes.as_ref()?.owner(token, presented.headers, address).await {
            Ok(owner) => Some(owner),
            Err(error) => {
                reasons.push(error.to_string());
                None
            }
        }
    }

    /// The identity of a service account in the mesh as it is configured at the time.
    fn identity(&self, owner: &TokenOwner) -> Result<Identity, canopus_base::spiffe::IdentityError> {
        let settings = self.engine.read::<Settings>(&()).unwrap_or_default();
        Identity::new(settings.trust_domain(), &owner.namespace, &owner.service_account)
    }
}

impl Authenticator for Authenticators {
    fn authenticate<'a>(
        &'a self,
        address: Option<SocketAddr>,
        headers: &'a HeaderMap,
    ) -> std::pin::Pin<Box<dyn Future<Output = Option<Identity>> + Send + 'a>> {
        Box::pin(async move {
            // Parity: where xDS takes everybody, the debug endpoints take nobody from elsewhere.
            if !self.over_http {
                return None;
            }
            let presented = Presented { address, certified: &[], headers, door: Door::Http };
            match self.identities(&presented).await {
                Ok(identities) => identities.iter().find_map(|identity| identity.parse().ok()),
                Err(reasons) => {
                    warn!(peer = ?address, %reasons, "a question from elsewhere is refused");
                    None
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
