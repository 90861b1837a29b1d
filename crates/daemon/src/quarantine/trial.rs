//! Which of several suspects are guilty: the proxies that rejected something are the judges.
//!
//! An arrangement holds some suspects back and serves the rest as their owners want them; the proxies accept it or not, and
//! that decides the next one.

use std::collections::BTreeSet;

use canopus_mesh::world::Origin;

/// A search for the guilty.
#[derive(Debug)]
pub(super) struct Trial {
    stage: Stage,
    /// Suspects of which nothing is known yet, in the parts in which they will be looked at; the last comes next.
    open: Vec<Vec<Origin>>,
    guilty: BTreeSet<Origin>,
}

#[derive(Debug)]
enum Stage {
    /// All of them are held, as they were when everything was accepted.
    All(Vec<Origin>),
    /// These objects are served; open and guilty ones are held.
    Released(Vec<Origin>),
    /// These objects are held, one more after each rejection.
    Growing(Vec<Origin>),
    Over,
}

impl Trial {
    /// Holds all suspects and then serves them again, half by half: for changes to what was accepted before.
    pub(super) fn by_release(suspects: Vec<Origin>) -> Self {
        Self { stage: Stage::All(suspects), open: Vec::new(), guilty: BTreeSet::new() }
    }

    /// Holds one suspect more after the other, the first first, until that is accepted, and then serves again those who turn
    /// out not to matter: for proxies that have accepted nothing yet, of which nobody knows what they would.
    pub(super) fn by_hold(suspects: Vec<Origin>) -> Self {
        let mut trial = Self { stage: Stage::Over, open: Vec::new(), guilty: BTreeSet::new() };
        trial.open = suspects.into_iter().rev().map(|suspect| vec![suspect]).collect();
        trial.hold_also(Vec::new());
        trial
    }

    /// The objects that this arrangement holds.
    pub(super) fn held(&self) -> BTreeSet<&Origin> {
        match &self.stage {
            Stage::All(all) | Stage::Growing(all) => all.iter().collect(),
            Stage::Released(_) => self.open.iter().flatten().chain(&self.guilty).collect(),
            Stage::Over => self.guilty.iter().collect(),
        }
    }

    /// Whether it is decided who is guilty; that may be nobody.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Takes the judge's answer to this arrangement.
    pub(super) fn answer(&mut self, accepted: bool) {
        match (std::mem::replace(&mut self.stage, Stage::Over), accepted) {
            (Stage::All(all), true) => {
                self.split(all);
                self.release_next();
            }
            // Even so it is rejected: it is none of them.
            (Stage::All(_), false) | (Stage::Over, _) => {}
            (Stage::Released(_), true) => self.release_next(),
            (Stage::Released(part), false) => {
                if part.len() > 1 {
                    self.split(part);
                } else {
                    self.guilty.extend(part);
                }
                self.release_next();
            }
            (Stage::Growing(mut held), true) => {
                // Without the last one it was rejected.
                self.guilty.extend(held.pop());
                self.open = held.into_iter().map(|suspect| vec![suspect]).collect();
                self.release_next();
            }
            (Stage::Growing(held), false) => self.hold_also(held),
        }
    }

    /// Ends it with what is known.
    pub(super) fn stop(&mut self) {
        self.stage = Stage::Over;
    }

    /// Ends it with nobody guilty.
    pub(super) fn dismiss(&mut self) {
        self.guilty.clear();
        self.stop();
    }

    fn split(&mut self, mut part: Vec<Origin>) {
        let half = part.split_off(part.len() / 2);
        self.open.extend([half, part].into_iter().filter(|part| !part.is_empty()));
    }

    fn release_next(&mut self) {
        let Some(next) = self.open.pop() else { return };
        // Some object is guilty, or all of them together would have been accepted.
        if self.open.is_empty() && self.guilty.is_empty() && next.len() == 1 {
            self.guilty.extend(next);
        } else {
            self.stage = Stage::Released(next);
        }
    }

    fn hold_also(&mut self, mut held: Vec<Origin>) {
        if let Some(one) = self.open.pop() {
            held.extend(one);
            self.stage = Stage::Growing(held);
        }
    }
}

#[cfg(test)]
mod tests {
    use canopus_api::{Kind, ObjectKey};

    use super::*;

    fn suspects(count: usize) -> Vec<Origin> {
        let origin = |n| Origin::new("c", ObjectKey::new(Kind::VirtualService, "n", &format!("{n:02}")));
        (0..count).map(origin).collect()
    }

    /// Runs a trial to its end; how many arrangements it took. Judges accept what serves none of the guilty.
    fn run(trial: &mut Trial, guilty: &BTreeSet<Origin>) -> usize {
        let mut arrangements = 0;
        while !trial.is_over() {
            let accepted = guilty.iter().all(|one| trial.held().contains(one));
            trial.answer(accepted);
            arrangements += 1;
        }
        arrangements
    }

    #[test]
    fn every_set_of_the_guilty_is_found_by_release() {
        for count in 1..=6 {
            let all = suspects(count);
            for mask in 1..1_usize << count {
                let guilty: BTreeSet<Origin> =
                    (0..count).filter(|n| mask >> n & 1 == 1).map(|n| all[n].clone()).collect();
                let mut trial = Trial::by_release(all.clone());
                run(&mut trial, &guilty);
                assert_eq!(trial.held(), guilty.iter().collect(), "{count} {mask:b}");
            }
        }
    }

    #[test]
    fn one_of_many_is_found_in_few_steps() {
        let all = suspects(64);
        let guilty = BTreeSet::from([all[41].clone()]);
        let mut trial = Trial::by_release(all);
        assert!(run(&mut trial, &guilty) <= 14);
        assert_eq!(trial.held().len(), 1);
    }

    #[test]
    fn sole_suspect_is_guilty_once_holding_it_is_accepted() {
        let all = suspects(1);
        let mut trial = Trial::by_release(all.clone());
        assert_eq!(trial.held().len(), 1);
        trial.answer(true);
        assert!(trial.is_over() && trial.held().contains(&all[0]));
    }

    #[test]
    fn nobody_is_guilty_when_holding_all_is_rejected() {
        let mut trial = Trial::by_release(suspects(3));
        trial.answer(false);
        assert!(trial.is_over() && trial.held().is_empty());
    }

    #[test]
    fn every_set_of_the_guilty_is_found_by_hold() {
        let all = suspects(5);
        for mask in 1..1_usize << 5 {
            let guilty: BTreeSet<Origin> =
                (0..5).filter(|n| mask >> n & 1 == 1).map(|n| all[n].clone()).collect();
            let mut trial = Trial::by_hold(all.clone());
            run(&mut trial, &guilty);
            assert_eq!(trial.held(), guilty.iter().collect(), "{mask:b}");
        }
    }

    #[test]
    fn suspects_are_held_one_by_one_until_that_is_accepted() {
        let all = suspects(3);
        let mut trial = Trial::by_hold(all.clone());
        assert_eq!(trial.held(), BTreeSet::from([&all[0]]));
        trial.answer(false);
        assert_eq!(trial.held(), BTreeSet::from([&all[0], &all[1]]));
        trial.answer(true);
        assert_eq!(trial.held(), BTreeSet::from([&all[1]]), "the first is tried again");
        trial.answer(true);
        assert!(trial.is_over());
        assert_eq!(trial.held(), BTreeSet::from([&all[1]]));
        let mut hopeless = Trial::by_hold(all);
        (0..3).for_each(|_| hopeless.answer(false));
        assert!(hopeless.is_over() && hopeless.held().is_empty());
        assert!(Trial::by_hold(Vec::new()).is_over());
    }

    #[test]
    fn trial_that_is_stopped_holds_those_known_to_be_guilty() {
        let all = suspects(4);
        let guilty = BTreeSet::from([all[0].clone(), all[3].clone()]);
        let mut trial = Trial::by_release(all.clone());
        while trial.guilty.is_empty() {
            let accepted = guilty.iter().all(|one| trial.held().contains(one));
            trial.answer(accepted);
        }
        trial.stop();
        assert_eq!(trial.held().len(), 1);
    }
}
