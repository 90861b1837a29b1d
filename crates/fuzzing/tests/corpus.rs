//! Every input that was kept is fed to its target, and so are pieces and halves of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use canopus_fuzzing::{TARGETS, run};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");

fn inputs(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(CORPUS).join(target);
    let files = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn kept_inputs_break_nothing() {
    for (target, _) in TARGETS {
        let inputs = inputs(target);
        assert!(!inputs.is_empty(), "{target} has no inputs");
        for input in inputs {
            run(target, &input);
            // A parser that reads the whole has to survive any part of it.
            let step = input.len() / 64 + 1;
            for end in (0..input.len()).step_by(step) {
                run(target, &input[..end]);
                run(target, &input[end..]);
                let mut changed = input.clone();
                changed[end] ^= 0x15;
                run(target, &changed);
            }
        }
    }
}

#[test]
fn every_target_has_a_binary_and_every_binary_a_target() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let binaries = fs::read_dir(sources).unwrap().map(|file| file.unwrap().path());
    let binaries: BTreeSet<_> =
        binaries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(binaries, TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect());
}
