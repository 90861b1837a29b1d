//! Gateways and sidecars: where proxies listen.

use super::Entry;

const PORT: &[(&str, &str)] = &[
    ("number", "The number."),
    ("protocol", "What is spoken: HTTP, HTTPS, GRPC, GRPC-WEB, HTTP2, MONGO, TCP or TLS."),
    ("name", "A name."),
    ("target_port", "Has no effect."),
];
const CAPTURE: &str = "How traffic gets to the listener.";
const BIND: &str = "The address or Unix socket to listen on.";
const POOL: &str = "Bounds on connections to the workload.";

pub(super) const WORDS: &[Entry] = &[
    (
        "Gateway",
        "What proxies at the edge of the mesh listen for.",
        &[
            ("selector", "Labels of the pods of the proxies, every one of them."),
            ("servers", "What they listen for."),
        ],
    ),
    (
        "Server",
        "A port that is listened on, and the hosts served there.",
        &[
            ("name", "A name, unique within the gateway, that statistics show."),
            ("port", "The port."),
            ("bind", BIND),
            ("hosts", "The hosts, each optionally as `namespace/host`."),
            ("tls", "How TLS is done, if it is."),
            ("default_endpoint", "Has no effect."),
        ],
    ),
    ("Port", "A port that is listened on.", PORT),
    ("SidecarPort", "A port that is listened on.", PORT),
    (
        "ServerTLSSettings",
        "How TLS is done with clients.",
        &[
            ("https_redirect", "Answers plain HTTP with a redirect to HTTPS."),
            ("mode", "Whether TLS is terminated, and what clients have to show."),
            ("credential_name", "The secret with certificate and key, and perhaps the authority of clients."),
            ("credential_names", "Secrets with certificates and keys, one for each type of key."),
            (
                "ca_cert_credential_name",
                "The secret with the authority of clients, if it is not with the certificate.",
            ),
            ("server_certificate", "The file with the certificate."),
            ("private_key", "The file with the key."),
            ("ca_certificates", "The file with the authorities of clients."),
            ("ca_crl", "The file with the certificates that are revoked."),
            ("tls_certificates", "Files with certificates and keys, one set for each type of key."),
            ("subject_alt_names", "Names of which a client's certificate has to have one."),
            (
                "verify_certificate_spki",
                "Hashes of public keys of which a client's certificate has to have one.",
            ),
            ("verify_certificate_hash", "Hashes of which a client's certificate has to have one."),
            ("min_protocol_version", "The lowest version of TLS; 1.2 by default."),
            ("max_protocol_version", "The highest version of TLS."),
            ("cipher_suites", "The cipher suites; the proxy's own choice by default."),
            ("ecdh_curves", "The curves for the exchange of keys; the proxy's own choice by default."),
            ("insecure_skip_verify", "Takes clients whose certificates no authority vouches for."),
        ],
    ),
    (
        "ServerTLSSettings.TLSCertificate",
        "Files with a certificate.",
        &[
            ("server_certificate", "The file with the certificate."),
            ("private_key", "The file with the key."),
            ("ca_certificates", "The file with the authorities of clients."),
        ],
    ),
    (
        "Sidecar",
        "What sidecars listen for and which services they know.",
        &[
            ("workload_selector", "Which workloads it is for; all of the namespace by default."),
            ("ingress", "What they take in for the workload; by default all ports of its services."),
            ("egress", "Which services they know; by default all of the mesh."),
            ("inbound_connection_pool", POOL),
            ("outbound_traffic_policy", "What becomes of traffic to services nobody knows."),
        ],
    ),
    (
        "IstioIngressListener",
        "A port that is listened on for the workload.",
        &[
            ("port", "The port."),
            ("bind", BIND),
            ("capture_mode", CAPTURE),
            (
                "default_endpoint",
                "Where the workload is: an address on loopback or a Unix socket, with a port.",
            ),
            ("tls", "How TLS is done, if it is not done by the mesh."),
            ("connection_pool", POOL),
        ],
    ),
    (
        "IstioEgressListener",
        "Services the workload may call.",
        &[
            ("port", "The port to listen on; the ports of the services by default."),
            ("bind", BIND),
            ("capture_mode", CAPTURE),
            (
                "hosts",
                "The services, as `namespace/host`; `*`, `.` and `~` mean any, the own and no namespace.",
            ),
        ],
    ),
    (
        "OutboundTrafficPolicy",
        "What becomes of traffic to services nobody knows.",
        &[("mode", "Whether it is let through."), ("egress_proxy", "A service that it is sent through.")],
    ),
];
