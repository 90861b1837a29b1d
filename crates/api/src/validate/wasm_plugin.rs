//! WebAssembly filters: where their code comes from, how it is checked and run.

use std::collections::BTreeSet;

use canopus_proto::istio::extensions::v1alpha1::{EnvValueSource, EnvVar, VmConfig};
use canopus_proto::istio::r#type::v1beta1::PortSelector;

use super::code::{Fault, codes};
use super::scope::Scope;
use super::selector;
use crate::istio::WasmPlugin;
use crate::url::Url;

codes! {
    NO_URL: error "wasm-url-missing", "give the url of an image or of a .wasm file";
    BAD_URL: error "wasm-url-invalid", "give a url that can be fetched";
    UNKNOWN_SCHEME: error "wasm-url-scheme", "use oci, http, https or file";
    SHA_LENGTH: error "wasm-sha256-length", "give the SHA-256 of the code in hexadecimal, 64 digits";
    SHA_DIGITS: error "wasm-sha256-digits", "give the SHA-256 of the code in lower-case hexadecimal";
    PULL_SECRET_TOO_LONG: error "wasm-pull-secret-too-long", "use a name of at most 253 characters";
    NAME_TOO_LONG: error "wasm-plugin-name-too-long", "use a name of at most 256 characters";
    ENV_WITHOUT_NAME: error "wasm-env-without-name", "name the variable";
    ENV_NAME_TOO_LONG: error "wasm-env-name-too-long", "use a name of at most 256 characters";
    ENV_TWICE: error "wasm-env-twice", "give each variable once";
    ENV_VALUE_OF_HOST: error "wasm-env-value-of-host", "remove the value, or valueFrom: HOST";
    MATCH_PORT: error "wasm-match-port-out-of-range", "use a port from 1 to 65535";
}

const MAX_SECRET: usize = 253;
const MAX_NAME: usize = 256;

/// Checks a WasmPlugin.
pub fn check(plugin: &WasmPlugin, mut scope: Scope<'_>) {
    let spec = &plugin.spec;
    let mut scope = scope.field("spec");
    let (selector, target) = (spec.selector.as_ref(), spec.target_ref.as_ref());
    selector::one_way(selector, target, &spec.target_refs, scope.again());
    scope.optional("selector", selector, selector::workload);
    selector::target_refs(target, &spec.target_refs, scope.again());
    scope.field("url").require(url(&spec.url));
    scope.field("sha256").require(sha256(&spec.sha256));
    scope.field("imagePullSecret").require(pull_secret(&spec.image_pull_secret));
    scope.field("pluginName").require(plugin_name(&spec.plugin_name, 255));
    scope.optional("vmConfig", spec.vm_config.as_ref(), vm_config);
    match_ports(spec.r#match.iter().map(|selector| selector.ports.as_slice()), scope.field("match"));
}

/// Where code comes from; without a scheme it is an image of a registry.
pub fn url(text: &str) -> Result<(), Fault> {
    if text.is_empty() {
        return Err(NO_URL.says("url field needs to be set"));
    }
    let scheme = fetchable(text).map_err(|message| BAD_URL.says(message).with_value(text))?;
    match scheme.as_str() {
        "" | "file" | "http" | "https" | "oci" => Ok(()),
        _ => Err(UNKNOWN_SCHEME.says(format!("url contains unsupported scheme: {scheme}")).with_value(text)),
    }
}

/// The scheme of an address that can be asked for, if need be with `http://` in front.
fn fetchable(text: &str) -> Result<String, String> {
    let strictly = |url: &str| match Url::parse(url) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("failed to strict parse url: {error}")),
    };
    let refusal = match Url::parse_request(text) {
        Ok(url) => return strictly(text).map(|()| url.scheme),
        Err(error) => error,
    };
    let with_scheme = format!("http://{text}");
    match Url::parse_request(&with_scheme) {
        Ok(url) => strictly(&with_scheme).map(|()| url.scheme),
        Err(_) => Err(format!("failed to parse url: {refusal}")),
    }
}

/// The digest of the code, if it is given.
pub fn sha256(digest: &str) -> Result<(), Fault> {
    if digest.is_empty() {
        return Ok(());
    }
    if digest.len() != 64 {
        return Err(SHA_LENGTH.says("sha256 field must be 64 characters long").with_value(digest));
    }
    if !digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(SHA_DIGITS.says("sha256 field must match [a-f0-9]{64} pattern").with_value(digest));
    }
    Ok(())
}

/// The Secret with which an image is pulled.
pub fn pull_secret(name: &str) -> Result<(), Fault> {
    if name.len() > MAX_SECRET {
        let message = "imagePullSecret field must be less than 253 characters long";
        return Err(PULL_SECRET_TOO_LONG.says(message));
    }
    Ok(())
}

/// The name of a plugin. Parity: kinds disagree in the length they `say` is allowed, not in the one that is.
pub(super) fn plugin_name(name: &str, say: usize) -> Result<(), Fault> {
    if name.len() > MAX_NAME {
        let message = format!("pluginName field must be less than {say} characters long");
        return Err(NAME_TOO_LONG.says(message));
    }
    Ok(())
}

/// What the code finds in its environment.
pub fn vm_config(config: &VmConfig, mut scope: Scope<'_>) {
    let mut names = BTreeSet::new();
    scope.first_only(|mut scope| {
        scope.each("env", &config.env, |variable, scope| env(variable, &mut names, scope));
    });
}

fn env<'a>(variable: &'a EnvVar, names: &mut BTreeSet<&'a str>, mut scope: Scope<'_>) {
    let EnvVar { name, value, .. } = variable;
    if name.is_empty() {
        scope.field("name").add(ENV_WITHOUT_NAME.says("spec.vmConfig.env invalid"));
    } else if name.len() > MAX_NAME {
        let message = "env.name field must be less than 255 characters long";
        scope.field("name").add(ENV_NAME_TOO_LONG.says(message));
    } else if !names.insert(name.as_str()) {
        scope.field("name").add(ENV_TWICE.says("duplicate env").with_value(name));
    }
    let inline = variable.value_from == EnvValueSource::Inline as i32;
    scope.field("value").add_if(!inline && !value.is_empty(), || {
        ENV_VALUE_OF_HOST.says("value may only be set when valueFrom is INLINE")
    });
}

/// The ports that traffic is chosen by, of each of several selectors.
pub(super) fn match_ports<'a>(selectors: impl Iterator<Item = &'a [PortSelector]>, mut scope: Scope<'_>) {
    scope.first_only(|mut scope| {
        for (at, ports) in selectors.enumerate() {
            let mut list = scope.item(at);
            let mut list = list.field("ports");
            for (port_at, PortSelector { number }) in ports.iter().enumerate() {
                list.item(port_at).field("number").add_if(!(1..=65535).contains(number), || {
                    let place = format!("spec.Match[{at}].Ports[{port_at}]");
                    MATCH_PORT.says(format!("{place} is out of range: {number}")).with_value(number)
                });
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        url(text).err().map(|fault| fault.to_string()).unwrap_or_default()
    }

    #[test]
    fn code_is_fetched_from_registries_servers_and_files() {
        for fine in ["oci://a/b:v1", "https://a/b.wasm", "http://a", "file:///a.wasm", "a.example/b:v1", "/a"]
        {
            assert_eq!(said(fine), "", "{fine}");
        }
        assert_eq!(said(""), "url field needs to be set");
        assert_eq!(said("foo://a"), "url contains unsupported scheme: foo");
        assert_eq!(said("a:b/c"), "url contains unsupported scheme: a");
        assert_eq!(said("a b"), r#"failed to parse url: parse "a b": invalid URI for request"#);
        assert_eq!(
            said("http://a/#%"),
            r#"failed to parse url: parse "http://a/#%": invalid URL escape "%""#
        );
    }

    #[test]
    fn all_variables_are_checked_and_the_first_fault_is_said() {
        let variable = |name: &str, value: &str, from: EnvValueSource| EnvVar {
            name: name.into(),
            value: value.into(),
            value_from: from as i32,
        };
        let config = VmConfig {
            env: vec![
                variable("A", "1", EnvValueSource::Inline),
                variable("A", "2", EnvValueSource::Host),
                variable("", "", EnvValueSource::Host),
            ],
        };
        let report = crate::validate::fragment(|scope| vm_config(&config, scope));
        assert_eq!(report.error_text().unwrap(), "duplicate env");
        assert_eq!(report.errors.len(), 3);
        assert_eq!(report.errors[2].path, "env[2].name");
    }
}
