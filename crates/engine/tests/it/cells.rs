//! One input family shared by the integration tests.

use canopus_engine::{Applied, Batch, Engine, Input};

/// Which bucket a cell is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Group {
    Odd,
    Even,
}

/// A numbered cell that holds a number.
pub(crate) struct Cell;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CellValue {
    pub(crate) number: i64,
}

impl From<i64> for CellValue {
    fn from(number: i64) -> Self {
        Self { number }
    }
}

impl Input for Cell {
    const NAME: &'static str = "cell";
    type Key = u32;
    type Value = CellValue;
    type Index = Group;
    fn index(_: &u32, value: &CellValue) -> Vec<Group> {
        vec![if value.number % 2 == 0 { Group::Even } else { Group::Odd }]
    }
}

/// Sets cells in one batch.
pub(crate) fn set(engine: &Engine, cells: impl IntoIterator<Item = (u32, i64)>) -> Applied {
    let mut batch = Batch::new();
    for (key, number) in cells {
        batch.set::<Cell>(key, number.into());
    }
    engine.apply(batch)
}
