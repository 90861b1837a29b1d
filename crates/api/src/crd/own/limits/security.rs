//! Who may talk to whom.

use super::Limit::{Also, AtMostOne, Each, MaxItems, MaxLength, MinLength, MinProperties, Pattern, Required};
use super::{Entry, ONE_TARGET, rule};

pub(super) const LIMITS: &[Entry] = &[
    ("AuthorizationPolicy", &[ONE_TARGET]),
    ("AuthorizationPolicy.targetRefs", &[MaxItems(16)]),
    ("AuthorizationPolicy.rules", &[MaxItems(512)]),
    ("Rule.from", &[MaxItems(512)]),
    (
        "Source",
        &[rule(
            "(has(self.serviceAccounts) || has(self.notServiceAccounts)) ? (!has(self.principals) &&\n\
             !has(self.notPrincipals) && !has(self.namespaces) && !has(self.notNamespaces)) : true",
            "Cannot set serviceAccounts with namespaces or principals",
        )],
    ),
    ("Source.service_accounts", &[MaxItems(16), Each(&[MaxLength(320)])]),
    ("Source.not_service_accounts", &[MaxItems(16), Each(&[MaxLength(320)])]),
    ("Condition.key", &[Required]),
    (
        "PeerAuthentication",
        &[rule(
            "has(self.portLevelMtls) ? (((has(self.selector) && has(self.selector.matchLabels)) ? \
             self.selector.matchLabels : {}).size() > 0) : true",
            "portLevelMtls requires selector",
        )],
    ),
    (
        "PeerAuthentication.port_level_mtls",
        &[
            MinProperties(1),
            rule("self.all(key, 0 < int(key) && int(key) <= 65535)", "port must be between 1-65535"),
        ],
    ),
    ("RequestAuthentication", &[ONE_TARGET]),
    ("RequestAuthentication.targetRefs", &[MaxItems(16)]),
    ("RequestAuthentication.jwt_rules", &[MaxItems(4096)]),
    (
        "JWTRule",
        &[AtMostOne {
            of: &["jwksUri", "jwks_uri", "jwks"],
            message: "only one of jwks or jwksUri can be set",
        }],
    ),
    ("JWTRule.issuer", &[MinLength(1)]),
    ("JWTRule.audiences", &[Each(&[MinLength(1)])]),
    (
        "JWTRule.jwks_uri",
        &[
            Also("jwks_uri"),
            MinLength(1),
            MaxLength(2048),
            rule(r#"url(self).getScheme() in ["http", "https"]"#, "url must have scheme http:// or https://"),
        ],
    ),
    ("JWTRule.from_params", &[Each(&[MinLength(1)])]),
    ("JWTRule.from_cookies", &[Each(&[MinLength(1)])]),
    ("JWTRule.space_delimited_claims", &[MaxItems(64), Each(&[MinLength(1)])]),
    ("JWTHeader.name", &[Required, MinLength(1)]),
    ("ClaimToHeader.header", &[Required, MinLength(1), Pattern("^[-_A-Za-z0-9]+$")]),
    ("ClaimToHeader.claim", &[Required, MinLength(1)]),
];
