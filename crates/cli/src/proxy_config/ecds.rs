//! Extension configurations.

use canopus_proto::Message as _;
use canopus_proto::envoy::config::core::v3::TypedExtensionConfig;

use super::dump::ConfigDump;
use super::render::{self, Format};
use crate::table::{aligned, row};

pub(super) fn print(dump: &ConfigDump, format: Format) -> anyhow::Result<String> {
    let dump = dump.extensions()?;
    if format != Format::Short {
        return Ok(render::message(&dump, format));
    }
    let mut extensions = Vec::new();
    for filter in dump.ecds_filters {
        let config = TypedExtensionConfig::decode(filter.ecds_filter.unwrap_or_default().value)?;
        let url = config.typed_config.unwrap_or_default().type_url;
        extensions.push((url.trim_start_matches("type.googleapis.com/").to_owned(), config.name));
    }
    extensions.sort();
    let rows = extensions.into_iter().map(|(kind, name)| vec![name, kind]);
    let rows: Vec<_> = std::iter::once(row(["ECDS NAME", "TYPE"])).chain(rows).collect();
    Ok(aligned(&rows, 5))
}
