//! Secrets never leave through here.

use canopus_proto::envoy::config::core::v3::{DataSource, TypedExtensionConfig, data_source::Specifier};
use canopus_proto::envoy::extensions::filters::http::wasm::v3::Wasm;
use canopus_proto::envoy::extensions::filters::network::wasm::v3::Wasm as NetworkWasm;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{Secret, secret};
use canopus_proto::envoy::extensions::wasm::v3::{PluginConfig, plugin_config::Vm};
use canopus_proto::resource::Resource;
use canopus_proto::{Any, Message as _};
use canopus_xds::types;

/// What stands instead of a private key.
const REDACTED: &[u8] = b"[redacted]";

/// What stands instead of the credentials a Wasm module is pulled with.
const REDACTED_VARIABLE: &str = "<Redacted>";

/// The variable that holds those credentials.
const PULL_SECRET: &str = "ISTIO_META_WASM_IMAGE_PULL_SECRET";

/// A resource without what is secret in it; `None` if it cannot be read, for then nobody can say what is.
pub(super) fn shown(type_url: &str, resource: &Resource) -> Option<Any> {
    match type_url {
        types::SECRET => secret(resource),
        types::EXTENSION => extension(resource),
        _ => Some(Any { type_url: type_url.to_owned(), value: resource.body.clone() }),
    }
}

fn secret(resource: &Resource) -> Option<Any> {
    let mut secret = Secret::decode(resource.body.clone()).ok()?;
    match &mut secret.r#type {
        Some(secret::Type::TlsCertificate(certificate)) => {
            certificate.private_key = Some(redacted());
            certificate.private_key_provider = None;
            certificate.password = None;
            certificate.pkcs12 = None;
        }
        Some(secret::Type::SessionTicketKeys(keys)) => keys.keys.iter_mut().for_each(|key| *key = redacted()),
        Some(secret::Type::GenericSecret(generic)) => generic.secret = Some(redacted()),
        Some(secret::Type::ValidationContext(_)) | None => {}
    }
    Some(Any::pack(&secret))
}

fn redacted() -> DataSource {
    DataSource { specifier: Some(Specifier::InlineBytes(REDACTED.into())), ..Default::default() }
}

/// Parity: of a Wasm module only the module is shown, without the envelope it travels in.
fn extension(resource: &Resource) -> Option<Any> {
    let extension = TypedExtensionConfig::decode(resource.body.clone()).ok()?;
    match &extension.typed_config {
        Some(config) if config.is::<Wasm>() => {
            let mut wasm: Wasm = config.unpack().ok()?;
            wasm.config.iter_mut().for_each(redact_pull_secret);
            Some(Any::pack(&wasm))
        }
        Some(config) if config.is::<NetworkWasm>() => {
            let mut wasm: NetworkWasm = config.unpack().ok()?;
            wasm.config.iter_mut().for_each(redact_pull_secret);
            Some(Any::pack(&wasm))
        }
        _ => Some(Any { type_url: types::EXTENSION.to_owned(), value: resource.body.clone() }),
    }
}

fn redact_pull_secret(plugin: &mut PluginConfig) {
    if let Some(Vm::VmConfig(vm)) = &mut plugin.vm
        && let Some(variables) = &mut vm.environment_variables
        && let Some(secret) = variables.key_values.get_mut(PULL_SECRET)
    {
        REDACTED_VARIABLE.clone_into(secret);
    }
}

#[cfg(test)]
mod tests {
    use canopus_proto::envoy::extensions::transport_sockets::tls::v3::TlsCertificate;
    use canopus_proto::envoy::extensions::wasm::v3::{EnvironmentVariables, VmConfig};

    use super::*;

    #[test]
    fn private_keys_are_not_shown() {
        let bytes = |text: &[u8]| DataSource {
            specifier: Some(Specifier::InlineBytes(text.to_vec().into())),
            ..Default::default()
        };
        let certificate = TlsCertificate {
            certificate_chain: Some(bytes(b"public")),
            private_key: Some(bytes(b"private")),
            ..Default::default()
        };
        let secret =
            Secret { name: "one".to_owned(), r#type: Some(secret::Type::TlsCertificate(certificate)) };
        let shown = shown(types::SECRET, &Resource::encode("one", &secret)).unwrap();
        let text = String::from_utf8_lossy(&shown.value).into_owned();
        assert!(
            text.contains("public") && text.contains("[redacted]") && !text.contains("private"),
            "{text}"
        );
    }

    #[test]
    fn credentials_of_wasm_modules_are_not_shown_for_http_and_network_filters() {
        let key_values =
            [(PULL_SECRET.to_owned(), "password".to_owned()), ("A".to_owned(), "kept".to_owned())];
        let variables = EnvironmentVariables { key_values: key_values.into(), ..Default::default() };
        let vm = VmConfig { environment_variables: Some(variables), ..Default::default() };
        let config = Some(PluginConfig { vm: Some(Vm::VmConfig(vm)), ..Default::default() });
        let http = Any::pack(&Wasm { config: config.clone() });
        let network = Any::pack(&NetworkWasm { config });
        for module in [http, network] {
            let type_url = module.type_url.clone();
            let extension = TypedExtensionConfig { name: "one".to_owned(), typed_config: Some(module) };
            let shown = shown(types::EXTENSION, &Resource::encode("one", &extension)).unwrap();
            assert_eq!(shown.type_url, type_url);
            let text = String::from_utf8_lossy(&shown.value).into_owned();
            assert!(text.contains("<Redacted>") && text.contains("kept"), "{type_url}: {text}");
            assert!(!text.contains("password"), "{type_url}: {text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_shown() {
        assert_eq!(shown(types::SECRET, &Resource::new("one", "not a message")), None);
    }
}
