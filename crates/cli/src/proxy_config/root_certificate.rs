//! Whether two proxies trust the same roots.

use super::dump::ConfigDump;
use super::secret;
use super::target::{Access, Source};

/// Compare the roots that two proxies trust.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// The proxies: `pod`, `pod.namespace` or `deployment/name.namespace`.
    #[arg(num_args = 2, required = true, value_names = ["PROXY", "PROXY"])]
    proxies: Vec<String>,
}

pub(super) fn compare(access: &Access<'_>, arguments: &Arguments) -> anyhow::Result<String> {
    let roots = |proxy: &String| {
        let text = access.get(&Source::Proxy(proxy), "/config_dump?mask=dynamic_active_secrets")?;
        secret::roots(&ConfigDump::parse(&text)?)
    };
    let [first, second] = arguments.proxies.as_slice() else {
        anyhow::bail!("rootca-compare requires 2 pods as an argument");
    };
    if roots(first)? == roots(second)? {
        Ok(format!(
            "Both [{first}] and [{second}] have the identical ROOTCA, theoretically the connectivity between them is available\n"
        ))
    } else {
        anyhow::bail!(
            "Both [{first}] and [{second}] have the non identical ROOTCA, theoretically the connectivity between them is unavailable"
        )
    }
}
