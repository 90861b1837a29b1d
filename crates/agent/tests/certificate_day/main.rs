//! A day of certificates with paused time: two control planes over one store, four agents that renew, and a look at everybody
//! once a minute. The loops are those of the processes ([`Keeper`](canopus_identity::rotation::Keeper) and
//! [`renew`](canopus_agent::certificates::renew)); the day has a rotation that an operator asks for and, hours later, the
//! renewal of the root that came of it.
//!
//! **Law.** A workload that runs has a valid certificate, every peer trusts it, and so does every control plane.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod store;
mod world;

use store::Crash;
use world::{Day, HOUR, MINUTE, POLICY, Plan};

const ROTATION: [&str; 3] = ["distributing", "retiring", "stable"];

fn two_rotations() -> Vec<&'static str> {
    [["stable"].as_slice(), &ROTATION, &ROTATION].concat()
}

#[tokio::test(start_paused = true)]
async fn day_passes_with_a_rotation_and_a_renewal_of_the_root() {
    let day = Day::run(Plan::default()).await;
    assert_eq!(day.violations, Vec::<String>::new());
    assert_eq!(day.phases, two_rotations());
    // A certificate lives for an hour and is renewed when half of it is left.
    assert!((4 * 40..4 * 60).contains(&day.issued), "{}", day.issued);
    assert_eq!(day.looks, 24 * 60 - 1);
}

#[tokio::test(start_paused = true)]
async fn control_plane_that_crashes_at_any_write_leaves_no_gap() {
    let clean = Day::run(Plan::default()).await;
    assert!(clean.writes >= 8, "two first roots, a request and two rotations: {}", clean.writes);
    for write in 0..clean.writes {
        for crash in [Crash::Before(write), Crash::After(write)] {
            let day = Day::run(Plan { crash: Some(crash), ..Plan::default() }).await;
            assert_eq!(day.violations, Vec::<String>::new(), "{crash:?}");
            assert_eq!(day.phases, two_rotations(), "{crash:?}");
            assert_eq!(day.crashes, 1, "{crash:?}");
        }
    }
}

/// Agents crash once in each renewal: before the request is sent, after it was signed, and when the certificate is in use.
#[tokio::test(start_paused = true)]
async fn agents_that_crash_in_every_renewal_leave_no_gap() {
    let day = Day::run(Plan { agents_crash: true, ..Plan::default() }).await;
    assert_eq!(day.violations, Vec::<String>::new());
    assert_eq!(day.phases, two_rotations());
    assert!(day.crashes > 3 * 20, "{}", day.crashes);
}

#[tokio::test(start_paused = true)]
async fn outage_is_survived_for_half_a_certificates_life() {
    let day = Day::run(Plan { away: Some((12 * HOUR, 12 * HOUR + 25 * MINUTE)), ..Plan::default() }).await;
    assert_eq!(day.violations, Vec::<String>::new());
}

/// The law can be broken: certificates do expire, and agents have new ones within a minute of the authority's return.
#[tokio::test(start_paused = true)]
async fn certificates_expire_in_a_longer_outage_and_come_back_with_the_authority() {
    let (start, end) = (12 * HOUR, 14 * HOUR);
    let day = Day::run(Plan { away: Some((start, end)), ..Plan::default() }).await;
    let times = day.violation_times();
    assert!(times.iter().all(|at| (start + 29 * MINUTE..=end + MINUTE).contains(at)), "{:?}", day.violations);
    assert_eq!(times.last().copied().map(|at| at >= end - MINUTE), Some(true), "{:?}", day.violations);
}

/// The law can be broken: a root that issues before everybody has it is not trusted by everybody.
#[tokio::test(start_paused = true)]
async fn root_that_issues_at_once_is_noticed() {
    let hasty = canopus_identity::rotation::Policy {
        propagation: std::time::Duration::ZERO,
        patience: std::time::Duration::ZERO,
        staleness: std::time::Duration::ZERO,
        ..POLICY
    };
    let day = Day::run(Plan { policy: hasty, ..Plan::default() }).await;
    assert!(
        day.violations.iter().any(|violation| violation.contains("does not trust")),
        "{:?}",
        day.violations
    );
}
