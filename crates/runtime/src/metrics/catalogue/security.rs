//! Certificates, keys and tokens.

super::metrics! {
    SECURITY

    /// Certificate requests received.
    Counter CITADEL_SERVER_CSR_COUNT = "citadel_server_csr_count"[];

    /// Certificates issued.
    Counter CITADEL_SERVER_SUCCESS_CERT_ISSUANCE_COUNT = "citadel_server_success_cert_issuance_count"[];

    /// Certificate requests from callers that could not be authenticated.
    Counter CITADEL_SERVER_AUTHENTICATION_FAILURE_COUNT = "citadel_server_authentication_failure_count"[];

    /// Certificate requests that could not be parsed.
    Counter CITADEL_SERVER_CSR_PARSING_ERR_COUNT = "citadel_server_csr_parsing_err_count"[];

    /// Certificate requests whose identity could not be read.
    Counter CITADEL_SERVER_ID_EXTRACTION_ERR_COUNT = "citadel_server_id_extraction_err_count"[];

    /// Certificate requests that could not be signed, by error.
    Counter CITADEL_SERVER_CSR_SIGN_ERR_COUNT = "citadel_server_csr_sign_err_count"["error"];

    /// Unix time at which the root certificate expires.
    Gauge CITADEL_SERVER_ROOT_CERT_EXPIRY_TIMESTAMP = "citadel_server_root_cert_expiry_timestamp"[];

    /// Seconds until the root certificate expires, negative once it has.
    Gauge CITADEL_SERVER_ROOT_CERT_EXPIRY_SECONDS = "citadel_server_root_cert_expiry_seconds"[];

    /// Unix time at which the chain of the signing certificate expires.
    Gauge CITADEL_SERVER_CERT_CHAIN_EXPIRY_TIMESTAMP = "citadel_server_cert_chain_expiry_timestamp"[];

    /// Seconds until the chain of the signing certificate expires, negative once it has.
    Gauge CITADEL_SERVER_CERT_CHAIN_EXPIRY_SECONDS = "citadel_server_cert_chain_expiry_seconds"[];

    /// Keys and certificates for gateways that could not be read.
    Counter PILOT_SDS_CERTIFICATE_ERRORS_TOTAL = "pilot_sds_certificate_errors_total"[];

    /// Token key sets fetched.
    Counter PILOT_JWKS_RESOLVER_NETWORK_FETCH_SUCCESS_TOTAL = "pilot_jwks_resolver_network_fetch_success_total"[];

    /// Token key sets that could not be fetched.
    Counter PILOT_JWKS_RESOLVER_NETWORK_FETCH_FAIL_TOTAL = "pilot_jwks_resolver_network_fetch_fail_total"[];
}
