//! Join tokens of the control plane's own issuer: what agents on plain machines present for their first certificate.

use std::sync::Arc;

use canopus_identity::token::{TokenError, TokenIssuer};
use canopus_sources::kubernetes::TokenOwner;
use rustls::pki_types::UnixTime;

use super::bearer::Door;

pub(super) struct JoinTokens {
    issuer: Arc<TokenIssuer>,
}

/// Why a join token proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Elsewhere it would be used up without a certificate to show for it, or counted without being used up.
    #[error("it is for a single use, and counts for a certificate request alone")]
    Elsewhere,
}

impl JoinTokens {
    pub(super) fn new(issuer: Arc<TokenIssuer>) -> Self {
        Self { issuer }
    }

    pub(super) fn is_own(&self, token: &str) -> bool {
        self.issuer.is_own(token)
    }

    /// The owner of a token. A token for a single use is used up.
    pub(super) fn owner(&self, token: &str, door: Door) -> Result<TokenOwner, Refused> {
        let now = UnixTime::now();
        let verified = self.issuer.verify(token, now)?;
        if verified.single_use && door != Door::Certificate {
            return Err(Refused::Elsewhere);
        }
        self.issuer.consume(&verified, now)?;
        Ok(TokenOwner {
            namespace: verified.namespace.into(),
            service_account: verified.service_account.into(),
            pod: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use canopus_identity::key::{KeyKind, SigningKey};
    use canopus_identity::token::{Grant, MemoryUses};

    use super::*;

    #[test]
    fn token_for_a_single_use_counts_for_one_certificate_and_nothing_else() {
        let key = SigningKey::generate(KeyKind::P256).unwrap();
        let issuer = Arc::new(TokenIssuer::new("istio-ca", &key, Box::<MemoryUses>::default()).unwrap());
        let tokens = JoinTokens::new(Arc::clone(&issuer));
        let grant = Grant {
            namespace: "shop".into(),
            service_account: "cart".into(),
            lifetime: Duration::from_secs(60),
            single_use: true,
        };
        let token = issuer.issue(&grant, UnixTime::now()).unwrap();
        assert_eq!(tokens.owner(&token, Door::Grpc), Err(Refused::Elsewhere));
        assert_eq!(&*tokens.owner(&token, Door::Certificate).unwrap().service_account, "cart");
        assert_eq!(tokens.owner(&token, Door::Certificate), Err(Refused::Token(TokenError::Used)));

        let reusable = issuer.issue(&Grant { single_use: false, ..grant }, UnixTime::now()).unwrap();
        for door in [Door::Grpc, Door::Certificate, Door::Http, Door::Grpc] {
            assert!(tokens.owner(&reusable, door).is_ok());
        }
    }
}
