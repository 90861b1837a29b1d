//! Limits of TLS settings that a compliance policy sets for the whole process.

use canopus_proto::envoy::extensions::transport_sockets::tls::v3::CommonTlsContext;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::{
    CompliancePolicy, TlsProtocol,
};
use canopus_runtime::flags::{COMPLIANCE_POLICY, Flags};

const APPROVED_CIPHERS: [&str; 4] = [
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
];

/// Holds a context to the compliance policy of the process. To be done last: it overrides what users chose.
pub(crate) fn enforce_compliance(flags: &Flags, context: &mut CommonTlsContext) {
    match flags.get(COMPLIANCE_POLICY) {
        "fips-140-2" => {
            let parameters = context.tls_params.get_or_insert_default();
            parameters.set_tls_minimum_protocol_version(TlsProtocol::TlSv12);
            parameters.set_tls_maximum_protocol_version(TlsProtocol::TlSv12);
            parameters.cipher_suites.retain(|cipher| APPROVED_CIPHERS.contains(&cipher.as_str()));
            // What Envoy uses by itself is P-256, which is approved.
            parameters.ecdh_curves.clear();
        }
        "fips-140-3" => {
            let parameters = context.tls_params.get_or_insert_default();
            parameters.compliance_policies = vec![CompliancePolicy::Fips202205 as i32];
        }
        "pqc" => {
            let parameters = context.tls_params.get_or_insert_default();
            parameters.set_tls_minimum_protocol_version(TlsProtocol::TlSv13);
            // A proxy built with OpenSSL would otherwise use every cipher of TLS 1.3.
            parameters.cipher_suites = APPROVED_CIPHERS.map(str::to_owned).to_vec();
            parameters.ecdh_curves = vec!["X25519MLKEM768".to_owned()];
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use canopus_proto::envoy::extensions::transport_sockets::tls::v3::TlsParameters;

    use super::*;

    fn enforced(policy: &str) -> TlsParameters {
        let parameters = TlsParameters {
            cipher_suites: vec!["AES128-SHA".to_owned(), APPROVED_CIPHERS[0].to_owned()],
            ecdh_curves: vec!["X25519".to_owned()],
            ..Default::default()
        };
        let mut context = CommonTlsContext { tls_params: Some(parameters), ..Default::default() };
        enforce_compliance(&Flags::read(&[("COMPLIANCE_POLICY", policy)]), &mut context);
        context.tls_params.unwrap_or_default()
    }

    #[test]
    fn choices_are_kept_when_there_is_no_policy() {
        assert_eq!(enforced("").cipher_suites.len(), 2);
    }

    #[test]
    fn choices_are_limited_when_a_policy_says_so() {
        let fips = enforced("fips-140-2");
        assert_eq!(fips.cipher_suites, [APPROVED_CIPHERS[0]]);
        assert!(fips.ecdh_curves.is_empty());
        assert_eq!(fips.tls_maximum_protocol_version(), TlsProtocol::TlSv12);
        assert_eq!(enforced("fips-140-3").compliance_policies, [CompliancePolicy::Fips202205 as i32]);
        assert_eq!(enforced("pqc").ecdh_curves, ["X25519MLKEM768"]);
    }
}
