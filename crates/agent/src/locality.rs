//! Where a proxy runs, as labels of its node or its cloud say.

/// Region, zone and sub-zone; any of them may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    /// The region.
    pub region: String,
    /// The zone.
    pub zone: String,
    /// The sub-zone.
    pub sub_zone: String,
}
