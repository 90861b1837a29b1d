//! The framework: order, wording, paths, and what Istio would have said.

use super::code::codes;
use super::*;

codes! {
    BAD: error "test-bad", "make it good";
    ODD: warning "test-odd", "make it even";
}

#[test]
fn one_error_is_said_as_it_is_and_several_as_a_list() {
    let errors = |count: usize| {
        fragment(|mut scope| (0..count).for_each(|n| scope.add(BAD.says(format!("bad {n}"))))).error_text()
    };
    assert_eq!(errors(0), None);
    assert_eq!(errors(1).unwrap(), "bad 0");
    assert_eq!(errors(2).unwrap(), "2 errors occurred:\n\t* bad 0\n\t* bad 1\n\n");
    let listed = fragment(|mut scope| scope.add(BAD.says("bad").listed()));
    assert_eq!(listed.error_text().unwrap(), "1 error occurred:\n\t* bad\n\n");
    assert_eq!(CODES.len(), 2);
}

#[test]
fn finding_has_the_path_of_its_scope() {
    let report = fragment(|mut scope| {
        scope.add(BAD.says("root"));
        let mut spec = scope.field("spec");
        spec.each("http", &["a", "b"], |item, mut scope| {
            scope.field("name").add(BAD.says(*item).with_value(item));
        });
        spec.field("labels").entry("a.\"b").add(ODD.says("key"));
        for path in ["", "tls[0]", "[1].name"] {
            spec.at(path).add(ODD.says("path"));
        }
    });
    let paths: Vec<_> = report.errors.iter().map(|finding| finding.path.as_str()).collect();
    assert_eq!(paths, ["", "spec.http[0].name", "spec.http[1].name"]);
    assert_eq!(report.errors[2].value.as_deref(), Some("b"));
    assert_eq!(report.warnings[0].path, r#"spec.labels["a.\"b"]"#);
    let at: Vec<_> = report.warnings[1..].iter().map(|finding| finding.path.as_str()).collect();
    assert_eq!(at, ["spec", "spec.tls[0]", "spec[1].name"]);
    assert!(!report.is_valid());
}

#[test]
fn what_istio_would_not_say_is_found_but_not_worded() {
    let report = fragment(|mut scope| {
        scope.first_only(|mut scope| {
            scope.add(BAD.says("first"));
            scope.add(BAD.says("second"));
        });
        scope.again().without_warnings().add(ODD.says("dropped"));
        scope.advise(Err(BAD.says("as a warning")));
        let failed = scope.fails(|mut scope| scope.add(BAD.says("third")));
        assert!(failed && !scope.fails(|mut scope| scope.add(ODD.says("odd"))));
        scope.ours().add(BAD.says("after the end"));
    });
    assert_eq!(report.errors.len(), 4);
    assert_eq!(report.error_text().unwrap(), "2 errors occurred:\n\t* first\n\t* third\n\n");
    assert_eq!(report.warnings.len(), 3);
    assert_eq!(report.warning_texts().collect::<Vec<_>>(), ["as a warning", "odd"]);
}

#[test]
fn errors_of_a_part_are_prefixed_listed_or_only_logged() {
    let report = fragment(|mut scope| {
        scope.prefixed(|| "in front:".into(), |mut scope| scope.add(BAD.says("bad")));
        scope.prefixed(|| unreachable!("nothing was found"), |mut scope| scope.add(ODD.says("odd")));
    });
    assert_eq!(report.error_text().unwrap(), "in front: bad");
    assert_eq!(report.warning_text().unwrap(), "odd");
    let listed = fragment(|mut scope| scope.listed(|mut scope| scope.add(BAD.says("bad"))));
    assert_eq!(listed.error_text().unwrap(), "1 error occurred:\n\t* bad\n\n");
    let logged = fragment(|mut scope| scope.logged(|mut scope| scope.add(BAD.says("bad"))));
    assert!(logged.is_valid() && logged.warning_text().is_none() && logged.warnings.len() == 1);
}
