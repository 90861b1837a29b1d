//! Localities: region, zone and subzone.

use std::fmt;

use canopus_api::labels as known;
use canopus_api::node::locality_of_label;
use canopus_base::labels::Labels;

/// A region, zone and subzone; unknown parts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Locality {
    /// The region.
    pub region: String,
    /// The zone of the region.
    pub zone: String,
    /// The subzone of the zone.
    pub subzone: String,
}

impl Locality {
    /// Parses `region/zone/subzone`; later parts may be missing.
    pub fn parse(text: &str) -> Self {
        let mut parts = text.split('/').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Self { region: next(), zone: next(), subzone: next() }
    }

    /// Reads the locality from a workload's labels: those of its node, else the one label with all three parts.
    pub fn from_labels(labels: &Labels) -> Option<Self> {
        let keys = [known::KUBERNETES_REGION.name, known::KUBERNETES_ZONE.name, known::TOPOLOGY_SUBZONE.name];
        let parts = keys.map(|key| labels.get(key));
        if parts.iter().all(Option::is_none) {
            return locality_label(labels).map(|label| Self::parse(&label));
        }
        let [region, zone, subzone] = parts.map(|part| part.unwrap_or_default().to_owned());
        Some(Self { region, zone, subzone })
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty() && self.zone.is_empty() && self.subzone.is_empty()
    }
}

/// Reads the one label that has all three parts, with dots replaced by slashes.
pub fn locality_label(labels: &Labels) -> Option<String> {
    let label = [known::TOPOLOGY_LOCALITY.name, known::LEGACY_LOCALITY.name]
        .into_iter()
        .find_map(|key| labels.get(key).filter(|value| !value.is_empty()))?;
    Some(locality_of_label(label))
}

impl fmt::Display for Locality {
    /// `region/zone/subzone`, ending before the first unknown part.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.region)?;
        if self.zone.is_empty() {
            return Ok(());
        }
        write!(f, "/{}", self.zone)?;
        if self.subzone.is_empty() { Ok(()) } else { write!(f, "/{}", self.subzone) }
    }
}
