//! Expressions of users in CEL.

use canopus_api::crd::check_expression;
use canopus_engine::{Ctx, Query};

/// Whether a text is an expression: a proxy refuses a whole listener for one that is not. Reading one is costly, and many
/// listeners have the same, so the answer is kept.
struct IsReadable;

impl Query for IsReadable {
    const NAME: &'static str = "expression_is_readable";
    type Key = String;
    type Value = bool;

    fn run(_: &Ctx<'_>, text: &String) -> bool {
        check_expression(text).is_ok()
    }
}

/// Whether a text is an expression.
pub(super) fn is_readable(ctx: &Ctx<'_>, text: &str) -> bool {
    *ctx.get::<IsReadable>(&text.to_owned())
}
