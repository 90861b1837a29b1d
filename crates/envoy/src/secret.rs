//! Secrets (SDS): the credentials that Gateways and DestinationRules name.
//!
//! A proxy gets its own workload certificate from its agent, not from here.

use crate::audience::{Build, SecretAudience, Shared};
use bytes::Bytes;
use canopus_engine::{Ctx, Query};
use canopus_mesh::credential::{self, Material};
use canopus_proto::envoy::config::core::v3::{DataSource, data_source::Specifier};
use canopus_proto::envoy::extensions::private_key_providers::cryptomb::v3alpha::CryptoMbPrivateKeyMethodConfig;
use canopus_proto::envoy::extensions::private_key_providers::qat::v3alpha::QatPrivateKeyMethodConfig;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::private_key_provider::ConfigType;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::secret::Type;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, PrivateKeyProvider, Secret, TlsCertificate,
};
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::mesh::v1alpha1::PrivateKeyProvider as Hardware;
use canopus_proto::istio::mesh::v1alpha1::private_key_provider::Provider;
use canopus_proto::resource::Resource;
use canopus_proto::{Any, Name};

/// One secret, by its SDS name; `None` if there is none or the proxy may not have it.
pub struct Secrets;

impl Query for Secrets {
    const NAME: &'static str = "secrets";
    type Key = (Shared<SecretAudience>, String);
    type Value = Option<Resource>;

    fn run(ctx: &Ctx<'_>, (audience, name): &Self::Key) -> Self::Value {
        let r#type = match credential::material(ctx, &audience.secrets, name)? {
            Material::Roots { roots, revoked } => Type::ValidationContext(CertificateValidationContext {
                trusted_ca: Some(inline(roots)),
                crl: revoked.map(inline),
                ..Default::default()
            }),
            Material::Certificate { chain, key, staple } => {
                let hardware = audience.config.private_key_provider;
                let hardware = hardware.filter(|hardware| has_driver(&audience.build, hardware));
                Type::TlsCertificate(certificate(chain, key, staple, hardware.as_ref()))
            }
        };
        Some(Resource::encode(name.as_str(), &Secret { name: name.clone(), r#type: Some(r#type) }))
    }
}

/// Whether the proxy was built with what hands keys to this hardware.
fn has_driver(build: &Build, hardware: &Hardware) -> bool {
    match &hardware.provider {
        Some(Provider::Cryptomb(_)) => build.has(&CryptoMbPrivateKeyMethodConfig::full_name()),
        Some(Provider::Qat(_)) => build.has(&QatPrivateKeyMethodConfig::full_name()),
        None => false,
    }
}

/// A certificate whose key Envoy uses itself or, where there is such hardware, hands to it.
fn certificate(
    chain: Bytes,
    key: Bytes,
    staple: Option<Bytes>,
    hardware: Option<&Hardware>,
) -> TlsCertificate {
    let certificate_chain = Some(inline(chain));
    let (name, fallback, config) = match hardware.and_then(|hardware| hardware.provider.as_ref()) {
        None => {
            return TlsCertificate {
                certificate_chain,
                private_key: Some(inline(key)),
                ocsp_staple: staple.map(inline),
                ..Default::default()
            };
        }
        Some(Provider::Cryptomb(settings)) => {
            let poll_delay = poll_delay(settings.poll_delay.as_ref());
            let config = CryptoMbPrivateKeyMethodConfig { private_key: Some(inline(key)), poll_delay };
            ("cryptomb", settings.fallback, Any::pack(&config))
        }
        Some(Provider::Qat(settings)) => {
            let poll_delay = poll_delay(settings.poll_delay.as_ref());
            let config = QatPrivateKeyMethodConfig { private_key: Some(inline(key)), poll_delay };
            ("qat", settings.fallback, Any::pack(&config))
        }
    };
    TlsCertificate {
        certificate_chain,
        private_key_provider: Some(PrivateKeyProvider {
            provider_name: name.into(),
            config_type: Some(ConfigType::TypedConfig(config)),
            fallback: fallback.is_some_and(|fallback| fallback.value),
        }),
        ..Default::default()
    }
}

/// Parity: whole seconds of the delay do not count.
fn poll_delay(delay: Option<&Duration>) -> Option<Duration> {
    Some(Duration { seconds: 0, nanos: delay.map_or(0, |delay| delay.nanos) })
}

fn inline(bytes: Bytes) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineBytes(bytes)), ..Default::default() }
}
