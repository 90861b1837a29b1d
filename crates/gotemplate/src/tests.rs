//! Rules that comparing with Go does not show: limits, sharing, the caller's objects and functions.

use std::borrow::Cow;
use std::time::{Duration, UNIX_EPOCH};

use crate::{
    CallError, Function, Functions, LimitError, Limits, MissingKey, Object, Templates, Value, Variadic, helm,
    sprig,
};

fn functions() -> Functions {
    let mut functions = Functions::builtin();
    helm::add_to(
        &mut functions,
        &sprig::Options { now: Some(UNIX_EPOCH + Duration::from_secs(1_700_000_000)) },
    );
    functions
}

fn render_with(functions: Functions, limits: Limits, text: &str, data: &Value) -> Result<String, String> {
    let mut templates =
        Templates::new("set", functions).with_missing_key(MissingKey::Zero).with_limits(limits);
    templates.parse("main", text).map_err(|error| error.to_string())?;
    let out = templates.render("main", data).map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn render(text: &str, data: &Value) -> Result<String, String> {
    render_with(functions(), Limits::default(), text, data)
}

fn limit_of(limits: Limits, text: &str) -> Option<LimitError> {
    let mut templates = Templates::new("set", functions()).with_limits(limits);
    templates.parse("main", text).unwrap();
    templates.render("main", &Value::Nil).unwrap_err().limit()
}

#[test]
fn endless_work_is_stopped_when_the_steps_are_used_up() {
    let limits = Limits { steps: 10_000, ..Limits::default() };
    for text in [
        "{{ range 1000000000 }}{{ end }}",
        "{{ until 1000000000 | len }}",
        "{{ $l := list 1 }}{{ range 60 }}{{ $l = concat $l $l }}{{ end }}",
        "{{ $l := list 1 }}{{ range 60 }}{{ $l = list $l $l }}{{ end }}{{ deepEqual $l (deepCopy $l) }}",
        "{{ $l := list 1 }}{{ range 60 }}{{ $l = list $l $l }}{{ end }}{{ toYaml $l }}",
    ] {
        assert_eq!(limit_of(limits, text), Some(LimitError::Steps(10_000)), "{text}");
    }
}

#[test]
fn large_text_is_stopped_before_it_is_built() {
    let limits = Limits { bytes: 1 << 20, ..Limits::default() };
    for text in [
        "{{ repeat 1000000000000 \"x\" }}",
        "{{ indent 1000000000000 \"x\" }}",
        "{{ printf \"%1000000d%1000000d\" 1 1 }}",
        "{{ $s := \"x\" }}{{ range 60 }}{{ $s = print $s $s }}{{ end }}",
        "{{ $s := repeat 100000 \"a\" }}{{ replace \"a\" $s $s }}",
        "{{ $s := repeat 100000 \"a\" }}{{ regexReplaceAll \"a\" $s $s }}",
        "{{ $l := list 1 }}{{ range 60 }}{{ $l = list $l $l }}{{ end }}{{ $l }}",
        "{{ $l := list 1 }}{{ range 60 }}{{ $l = list $l $l }}{{ end }}{{ toJson $l }}",
        "{{ range 100000 }}0123456789abcdef{{ end }}",
    ] {
        assert_eq!(limit_of(limits, text), Some(LimitError::Bytes(1 << 20)), "{text}");
    }
}

#[test]
fn recursion_is_stopped_when_it_nests_too_deep() {
    let depth = Some(LimitError::Depth(Limits::default().depth));
    for text in [
        "{{ define \"a\" }}{{ template \"a\" }}{{ end }}{{ template \"a\" }}",
        "{{ define \"a\" }}{{ include \"a\" . }}{{ end }}{{ include \"a\" . }}",
        "{{ define \"a\" }}{{ if true }}{{ with 1 }}{{ range 1 }}{{ (print (print (include \"a\" .))) }}{{ end }}{{ end }}{{ end }}{{ end }}{{ include \"a\" . }}",
        "{{ define \"a\" }}{{ tpl \"{{ include \\\"a\\\" . }}\" . }}{{ end }}{{ include \"a\" . }}",
    ] {
        assert_eq!(limit_of(Limits::default(), text), depth, "{text}");
    }
}

#[test]
fn deep_syntax_is_refused_by_the_parser() {
    let parens = format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000));
    assert_eq!(
        render(&parens, &Value::Nil),
        Err("template: main:1: max expression depth exceeded".to_owned())
    );
    let blocks = "{{ if 1 }}".repeat(100_000);
    assert_eq!(
        render(&blocks, &Value::Nil),
        Err("template: main:1: max expression depth exceeded".to_owned())
    );
}

#[test]
fn deep_values_are_freed_and_refused_where_they_are_walked() {
    let build = "{{ $x := dict }}{{ range 100000 }}{{ $x = dict \"a\" (list $x) }}{{ end }}";
    assert_eq!(render(build, &Value::Nil), Ok(String::new()));
    for walk in [
        "{{ $x }}",
        "{{ toJson $x }}",
        "{{ toYaml $x }}",
        "{{ deepCopy $x }}",
        "{{ deepEqual $x (deepCopy $x) }}",
    ] {
        let error = render(&format!("{build}{walk}"), &Value::Nil).unwrap_err();
        assert!(error.contains("a value nests deeper than 200 levels"), "{error}");
    }
}

#[test]
fn map_is_not_put_into_itself() {
    for text in [
        "{{ $d := dict }}{{ $_ := set $d \"a\" (list (dict \"b\" $d)) }}",
        "{{ $d := dict }}{{ $_ := merge $d (dict \"a\" $d) }}",
    ] {
        let error = render(text, &Value::Nil).unwrap_err();
        assert!(
            error.ends_with("the value contains the map it is put in; copy it with deepCopy first"),
            "{error}"
        );
    }
}

#[test]
fn change_of_a_map_is_seen_by_everybody_who_has_it() {
    let data = Value::map([("m", Value::map([("a", 1i64)]))]);
    assert_eq!(render("{{ $_ := set .m \"b\" 2 }}{{ .m }}", &data), Ok("map[a:1 b:2]".to_owned()));
    assert_eq!(render("{{ .m.b }}", &data), Ok("2".to_owned()));
}

#[derive(Debug)]
struct Pod;

impl Object for Pod {
    fn type_name(&self) -> Cow<'static, str> {
        "v1.Pod".into()
    }

    fn field(&self, name: &str) -> Option<Value> {
        (name == "Name").then(|| "web".into())
    }

    fn method(&self, name: &str) -> Option<Function> {
        (name == "Port").then(|| Function::new(|at: i64| 8000 + at))
    }

    fn print(&self) -> String {
        "{web}".to_owned()
    }
}

#[test]
fn object_gives_fields_and_methods_and_nothing_else() {
    let data = Value::map([("pod", Value::object(Pod))]);
    assert_eq!(
        render("{{ .pod.Name }} {{ .pod.Port 1 }} {{ 2 | .pod.Port }} {{ .pod }}", &data),
        Ok("web 8001 8002 {web}".to_owned())
    );
    let cases = [
        ("{{ .pod.Nope }}", "can't evaluate field Nope in type interface {}"),
        ("{{ .pod.Name 1 }}", "Name has arguments but cannot be invoked as function"),
        ("{{ .pod.Port \"x\" }}", "expected integer; found \"x\""),
        ("{{ .pod.Port }}", "wrong number of args for Port: want 1 got 0"),
    ];
    for (text, message) in cases {
        let error = render(text, &data).unwrap_err();
        assert!(error.ends_with(message), "{error}");
    }
}

#[test]
fn function_of_the_caller_is_checked_by_its_signature() {
    let mut functions = functions();
    functions.add("sum", |first: i64, others: Variadic<i64>| first + others.0.iter().sum::<i64>());
    functions.add("refuse", |_: Value| Err::<Value, _>(CallError::from("not today")));
    let try_render = |text: &str| render_with(functions.clone(), Limits::default(), text, &Value::Nil);
    assert_eq!(try_render("{{ sum 1 2 3 }}"), Ok("6".to_owned()));
    let error = try_render("{{ sum 1 2.5 }}").unwrap_err();
    assert_eq!(error, "template: main:1:9: executing \"main\" at <2.5>: expected integer; found 2.5");
    let error = try_render("{{ refuse 1 }}").unwrap_err();
    assert_eq!(
        error,
        "template: main:1:3: executing \"main\" at <refuse 1>: error calling refuse: not today"
    );
}

#[test]
fn chance_and_clock_are_refused_unless_the_caller_has_them() {
    let error = render("{{ randAlphaNum 5 }}", &Value::Nil).unwrap_err();
    assert!(
        error.ends_with("randAlphaNum is not available: rendering here is repeatable and offline"),
        "{error}"
    );
    assert_eq!(render("{{ now | date \"2006-01-02\" }}", &Value::Nil), Ok("2023-11-14".to_owned()));
    let mut timeless = Functions::builtin();
    helm::add_to(&mut timeless, &sprig::Options::default());
    let error = render_with(timeless, Limits::default(), "{{ now }}", &Value::Nil).unwrap_err();
    assert!(error.ends_with("the current time is not available: rendering here is repeatable"), "{error}");
}
