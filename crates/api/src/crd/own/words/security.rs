//! Who may talk to whom, and how they show who they are.

use super::Entry;

const TARGET_REF: &str = "Replaced by `targetRefs`.";

pub(super) const WORDS: &[Entry] = &[
    (
        "AuthorizationPolicy",
        "Which requests to workloads are allowed.",
        &[
            ("selector", "Which workloads it is for; all of the namespace by default."),
            ("targetRef", TARGET_REF),
            ("targetRefs", "Gateways or services it is for."),
            ("rules", "Which requests it is about: those that fit one of these. None, if there is none."),
            ("action", "What becomes of them; they are allowed by default."),
            ("provider", "Who decides, if the action is CUSTOM."),
        ],
    ),
    (
        "AuthorizationPolicy.ExtensionProvider",
        "Who decides about requests.",
        &[("name", "The name of a provider in the configuration of the mesh.")],
    ),
    (
        "Rule",
        "What a request has to be like; everything that is set has to fit.",
        &[
            ("from", "Who sends it: one of these."),
            ("to", "What it asks for: one of these."),
            ("when", "What else holds: all of these."),
        ],
    ),
    ("Rule.From", "Who sends a request.", &[("source", "The sender.")]),
    ("Rule.To", "What a request asks for.", &[("operation", "The operation.")]),
    (
        "Source",
        "The sender of a request; everything that is set has to fit. Texts may begin or end with `*`.",
        &[
            ("principals", "Identities from certificates, as `trust-domain/ns/namespace/sa/account`."),
            ("not_principals", "Identities it must not have."),
            ("request_principals", "Identities from tokens, as `issuer/subject`."),
            ("not_request_principals", "Identities from tokens it must not have."),
            ("namespaces", "Namespaces, from certificates."),
            ("not_namespaces", "Namespaces it must not be in."),
            (
                "service_accounts",
                "Accounts, as `namespace/account`, or `account` in the object's own namespace.",
            ),
            ("not_service_accounts", "Accounts it must not run as."),
            ("trust_domains", "Trust domains, from certificates."),
            ("not_trust_domains", "Trust domains it must not be of."),
            ("ip_blocks", "Addresses of the connection, alone or as CIDR blocks."),
            ("not_ip_blocks", "Addresses the connection must not come from."),
            ("remote_ip_blocks", "Addresses of the client, from headers or the PROXY protocol."),
            ("not_remote_ip_blocks", "Addresses the client must not have."),
        ],
    ),
    (
        "Operation",
        "What a request asks for; everything that is set has to fit. Texts may begin or end with `*`.",
        &[
            ("hosts", "Hosts."),
            ("not_hosts", "Hosts it must not be for."),
            ("ports", "Ports."),
            ("not_ports", "Ports it must not be for."),
            ("methods", "Methods."),
            ("not_methods", "Methods it must not have."),
            ("paths", "Paths; `{*}` and `{**}` stand for one segment and for several."),
            ("not_paths", "Paths it must not be for."),
        ],
    ),
    (
        "Condition",
        "Something that holds of a request.",
        &[
            ("key", "What is looked at, such as `request.headers[x-token]`."),
            ("values", "One of these it has to be."),
            ("not_values", "None of these it may be."),
        ],
    ),
    (
        "RequestAuthentication",
        "Which tokens workloads accept. Requests without one pass, unless a policy says otherwise.",
        &[
            ("selector", "Which workloads it is for; all of the namespace by default."),
            ("targetRef", TARGET_REF),
            ("targetRefs", "Gateways or services it is for."),
            ("jwt_rules", "The tokens: one of these."),
        ],
    ),
    (
        "JWTRule",
        "Tokens of one issuer.",
        &[
            ("issuer", "Who issues them."),
            ("audiences", "Audiences of which a token has to have one."),
            ("jwks_uri", "Where the keys of the issuer are; found by its discovery document by default."),
            ("jwks", "The keys themselves."),
            ("from_headers", "The headers a token may be in."),
            ("from_params", "The parameters of the query a token may be in."),
            ("from_cookies", "The cookies a token may be in."),
            ("output_payload_to_header", "A header that carries the claims on, in base64."),
            ("output_claim_to_headers", "Headers that carry single claims on."),
            ("forward_original_token", "Keeps the token in the request."),
            ("timeout", "How long fetching the keys may take; 5 s by default."),
            ("space_delimited_claims", "Claims that are lists of words, besides `scope` and `permission`."),
            ("presence", "Whether a request has to have a token."),
        ],
    ),
    (
        "JWTHeader",
        "A header a token may be in.",
        &[("name", "Its name."), ("prefix", "What is before the token, such as `Bearer ` with its blank.")],
    ),
    (
        "ClaimToHeader",
        "A header that carries a claim on.",
        &[("header", "Its name."), ("claim", "The claim; dots lead into nested ones.")],
    ),
    (
        "PeerAuthentication",
        "Whether workloads accept only connections with mutual TLS.",
        &[
            ("selector", "Which workloads it is for; all of the namespace by default."),
            ("mtls", "What holds for all ports; as around it by default."),
            ("port_level_mtls", "What holds for single ports of the workload, by number."),
        ],
    ),
    (
        "PeerAuthentication.MutualTLS",
        "Whether mutual TLS is asked for.",
        &[("mode", "Whether it has to be used, may be used, or is not.")],
    ),
];
