//! Shares of traffic: percentages and weights.

use canopus_proto::istio::networking::v1alpha3::Percent;

use super::code::{Fault, codes};
use crate::text::number;

codes! {
    OUT_OF_RANGE: error "percent-out-of-range", "give a number from 0 to 100";
    BAD_FRACTION: error "percent-fraction-out-of-range", "give 0 or a number from 0.0001 to 100";
    NEGATIVE_WEIGHT: error "weight-negative", "give a weight of 0 or more";
}

/// A whole number of percent.
pub fn whole(percent: i32) -> Result<(), Fault> {
    if (0..=100).contains(&percent) {
        return Ok(());
    }
    Err(OUT_OF_RANGE.says(format!("percentage {percent} is not in range 0..100")).with_value(percent))
}

/// A percentage that may have a fraction, none too small to be honoured.
pub fn fraction(percent: &Percent) -> Result<(), Fault> {
    let value = percent.value;
    if !(0.0..=100.0).contains(&value) || (value > 0.0 && value < 0.0001) {
        let shown = number(value);
        let message = format!("percentage {shown} is neither 0.0, nor in range [0.0001, 100.0]");
        return Err(BAD_FRACTION.says(message).with_value(shown));
    }
    Ok(())
}

/// A share relative to others.
pub fn weight(weight: i32) -> Result<(), Fault> {
    if weight < 0 {
        return Err(NEGATIVE_WEIGHT.says(format!("weight {weight} < 0")).with_value(weight));
    }
    Ok(())
}
